"""Batch normalization taken out of a network in one call: its start, and its optimizer."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from jaxnorm._branches import residual_factors, scale_branches
from jaxnorm._centered_inputs import centered_inputs
from jaxnorm._checks import check_optimizer, warn
from jaxnorm._data_dependent_init import data_dependent_init
from jaxnorm._layout import Layout, layout_at, map_kernels
from jaxnorm._numerics import nonzero, promote
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries
from jaxnorm._roles import Roles, roles_of
from jaxnorm._sphere import center
from jaxnorm._trace.batch_statistics import warn_of_stored_statistics
from jaxnorm._trace.counts import values_per_unit
from jaxnorm._trace.gates import gate_values, gates
from jaxnorm._trace.interpret import Apply, compiled
from jaxnorm._trace.reading import Reading
from jaxnorm._trace.samples import doubled_program
from jaxnorm._zero_sums import centered_gradient, zero_sum_projection

#: What may be in force in the result, by the names that `propagation_findings` takes.
DATA, BRANCHES, ZERO_SUMS = "data_dependent_init", "residual_factors", "zero_sum_projection"

#: Values per unit below which its variance on other rows is expected to exceed 1 by half.
FEW = 8


class Applied(optax.GradientTransformationExtraArgs):  # type: ignore[misc]  # optax has no types
    """Optimizer with the names of the functions whose work is in force beside it.

    Attributes:
        applied: the names, for `describe_propagation`.
    """

    applied: tuple[str, ...]

    @classmethod
    def of(cls, tx: optax.GradientTransformation, applied: Iterable[str]) -> "Applied":
        """Returns the optimizer with names."""
        result = cls(*optax.with_extra_args_support(tx))
        result.applied = tuple(applied)
        return result


def normalizer_free(
    apply: Apply | Reading,
    params: PyTree,
    optimizer: Any = None,
    *inputs: Any,
    heads: Sequence[str] | None = None,
    zero_sums: bool | None = None,
    fitted: bool = True,
    quiet: bool | None = None,
    centered: bool = True,
) -> tuple[PyTree, Applied]:
    """Initial parameters and optimizer of a network from which batch normalization was taken out.

    The model's program is read, and then

    - every hidden kernel is made zero-sum per unit, and stays so (`zero_sum_projection`), except
      kernels whose units read one feature, such as depthwise ones, and those of the `first_layer`
      whose windows do not overlap, which read a row's features, a pixel or a patch: units do not
      see the mean of what they read, and no layer before these could bring it to light;
    - every hidden unit starts with pre-activations of variance 1 on the minibatch, and of mean 0 if
      its kernel has a bias of its own (`data_dependent_init`), with variance 1/L at the end of the
      L branches of a residual stream (`residual_factors`), over the mean square of a gate that
      multiplies that end; the kernels of gates with fewer entries than what they multiply
      (squeeze-and-excitation) keep their random start and their sums;
    - the optimizer sees each kernel's inputs centered (`centered_inputs`), and gradients without
      the part that the constraint takes out (`centered_gradient`): clipping too.

    The forward pass is the model's own: no statistics, no state, examples never interact.

    **The rate.** No statistics hold the size of pre-activations during the training, so large rates
    need care where batch normalization needs none: with a rate of 0.3 units may die, the loss of a
    segmentation stays that of a constant answer, and some networks end in NaN. With 16 rows per
    step or more `moving_average_normalization` bears batch normalization's rates. Start from 0.1
    with SGD, or 0.03 with two rows per update, momentum 0.9, a decay of 1e-3 on kernels, a warm-up
    and ``clip_by_layer_norm(1.0)``; and from 0.01 with AdamW or Muon and a decay of 0.1 on kernels,
    which takes the place of batch normalization's regularization. Tune rate and decay together on
    held-out rows, downwards. ``describe_propagation(apply, raw, x, start=raw at the start,
    applied=tx.applied)`` says whether the rate was too high.

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters,
            without batch normalization and with biases in its layers; for NNX ``lambda params, x:
            functional.apply(params, state, x, train=False)[0]`` of a model that
            `replace_batch_norm` returned. Without dropout and stochastic depth, which belong in
            the loss alone. Or a reading in the place of ``apply``, ``params`` and ``*inputs``:
            ``normalizer_free(net, optimizer)``; `read` takes the names of learned queries,
            ``as_inputs``.
        params: its random parameters, plain; or trained ones, with ``fitted=False``, as those of
            `fold_batch_norm`.
        optimizer: any optax transformation, clipping, momentum and weight decay included.
        *inputs: a minibatch of some hundred rows, and the remaining arguments of ``apply``.
        heads: regular expressions, searched for in the ``/``-joined paths, of the kernels that make
            results and are not constrained; None for those after which neither a kernel nor a
            residual sum follows. A network that is added to its own inputs, x + f(x), has the heads
            of f.
        zero_sums: if False, sums are not constrained; None for as ``fitted``.
        fitted: if False, the network starts as the function that ``params`` make, to the bit, and
            only the optimizer changes, unless ``zero_sums`` or ``quiet`` say otherwise.
        quiet: if False, branches are not made quiet; None for as ``fitted``.
        centered: if False, inputs are not centered in the gradient (of weights see ``zero_sums``).

    Returns:
        ``(raw, tx)``: plain parameters for ``apply``, and the optimizer for them, whose ``applied``
        names what was done. Train as ever: ``updates, opt_state = tx.update(gradients, opt_state,
        raw)``, whose further keywords reach ``optimizer``. `refresh_input_means` keeps the means of
        the inputs up to date, once in a while or at every step.

    Raises:
        ValueError: if every kernel makes a result, as `traced_layout` for parameters that are not
            understood, as `residual_factors` for branches that no factor scales, for an expression
            that matches no kernel, and for pre-activations that are not finite.
        TypeError: if ``optimizer`` is not an optax transformation, ``apply`` is not a function, or
            ``heads`` is one string in the place of several expressions.

    Warns:
        UserWarning: if no hidden layer has a bias, which batch normalization brought along; if no
            kernel makes a result; if no hidden unit can be fitted, as in a network whose hidden
            kernels are all recurrent; naming the kernels whose units are fitted to fewer than 8
            values; and if the model still has batch normalization, by the batch (as
            `traced_layout`) or, in evaluation, by stored statistics, whose roots divide what a
            kernel makes. Statistics that are the model's inputs, or parameters, are not recognized.

    Call it once, before parameters are replicated or sharded. Under jit, pmap and shard_map the
    optimizer does the same on every device, with no collective.

    Example:
        >>> import jax
        >>> def apply(params, x):
        ...     for layer in params[:-1]:
        ...         x = jax.nn.relu(x @ layer["kernel"] + layer["bias"][None])
        ...     return x @ params[-1]["kernel"] + params[-1]["bias"][None]
        >>> layer = {"kernel": jax.random.normal(jax.random.key(0), (8, 8)), "bias": jnp.ones(8)}
        >>> x = jax.random.normal(jax.random.key(1), (64, 8))
        >>> raw, tx = normalizer_free(apply, 3 * [layer], optax.sgd(0.1, momentum=0.9), x)
        >>> h = x @ raw[0]["kernel"] + raw[0]["bias"][None]
        >>> bool(jnp.allclose(h.mean(0), 0, atol=1e-5)), bool(jnp.allclose(h.std(0), 1, atol=1e-3))
        (True, True)

    Source: zero sums are those of Kutsuna 2019; the start that of Salimans and Kingma 2016, section
    3; centered inputs those of Schraudolph 1998. Together they are this library's.
    """
    net, optimizer = read_beside_optimizer(apply, params, optimizer, inputs)
    zero_sums, quiet = (fitted if each is None else each for each in (zero_sums, quiet))
    roles = roles_of(net, heads)
    if not roles.fan_in.keys() - roles.heads:
        raise ValueError(
            f"the kernels {listed(sorted(roles.heads))} make results, and there are no others, so "
            "there is no hidden layer to take batch normalization out of. Pass heads=() if they "
            "are hidden layers of a larger network."
        )
    warn_of_no_biases(roles)
    if zero_sums or fitted or quiet:
        warn_of_stored_statistics(roles.normalized)
    if heads is None:
        _warn_of_no_heads(roles)
    if fitted:
        _warn_of_no_fit(roles)
        warn_of_few_values(net, roles)
    factors = residual_factors(net) if quiet else None
    some = zero_sums and bool(roles.zero_sums)
    if some:
        net, optimizer = with_zero_sums(net, optimizer, _layout_of(roles, roles.zero_sums))
    raw = net.params
    if fitted and roles.fitted:
        raw = _fitted(net, raw, roles, factors)
    elif factors is not None:
        raw = scale_branches(raw, factors)
    _check_finite(raw)
    net = net.at(raw, net.inputs)
    if centered and roles.biases:
        layout = _layout_of(roles, {*roles.biases})
        optimizer = centered_inputs(net, optimizer, layout=layout)
    done = {DATA: fitted and roles.fitted, BRANCHES: factors is not None, ZERO_SUMS: some}
    return raw, Applied.of(optimizer, [name for name, is_done in done.items() if is_done])


def read_beside_optimizer(
    apply: Apply | Reading, params: PyTree, optimizer: Any, inputs: tuple[Any, ...]
) -> tuple[Reading, optax.GradientTransformation]:
    """Returns reading and optimizer of ``(net, optimizer)``, or of a model with its parameters."""
    if isinstance(apply, Reading) and optimizer is None:
        params, optimizer = None, params
    check_optimizer(optimizer)
    return Reading.of(apply, params, inputs), optimizer


def with_zero_sums(
    net: Reading, optimizer: optax.GradientTransformation, layout: Layout
) -> tuple[Reading, optax.GradientTransformation]:
    """Returns the reading at zero-sum kernels, and the optimizer that keeps them so."""
    params = jax.jit(partial(map_kernels, center, layout))(net.params)
    parts = centered_gradient(layout), optimizer, zero_sum_projection(layout)
    return net.at(params, net.inputs), optax.chain(*parts)


def warn_of_no_biases(roles: Roles) -> None:
    """Warns of a network whose layers were written for batch normalization, without a bias."""
    if roles.fitted and not roles.fitted & roles.biases.keys():
        warn(
            f"none of the hidden kernels {listed(sorted(roles.fitted))} has a bias of its own, so "
            "no unit can start with mean 0, and no inputs are centered. Batch normalization had a "
            "bias per channel: write use_bias=True in the layers that it followed."
        )


def _warn_of_no_heads(roles: Roles) -> None:
    """Warns of a network whose results are those of hidden layers."""
    if not roles.heads:
        warn(
            f"none of the kernels {listed(roles.fan_in)} makes a result: another kernel follows "
            "each, or it ends a branch of a residual stream. So the last ones start with variance "
            "1 and keep zero sums too, which a result need not have. Name the kernels that make "
            "results, heads=[regex]; or pass heads=() if the results are features, which another "
            "network reads."
        )


def _warn_of_no_fit(roles: Roles) -> None:
    """Warns of a network of which no hidden unit can be fitted, such as a recurrent one."""
    hidden = roles.fan_in.keys() - roles.heads - roles.inside_gates
    if hidden and not roles.fitted:
        warn(
            f"no unit of the hidden kernels {listed(sorted(hidden))} can be fitted, because the "
            "model uses them at every turn of a loop (as a recurrent cell or lax.map does), inside "
            "a shard_map, or not in products alone: they keep their random start, with zero sums. "
            "Write jax.vmap in the place of lax.map, and shard_map around the training step; "
            "of a recurrent network choose the start yourself, orthogonal_init for example, and "
            "pass fitted=False, zero_sums=True."
        )


def warn_of_few_values(net: Reading, roles: Roles) -> None:
    """Warns of units whose variance on other rows is not that of the minibatch."""
    traced = net.again(roles.fan_in, nodes=True)
    counts = values_per_unit(traced(net.inputs))
    few = {path: n for path, n in counts.items() if path in roles.fitted and n < FEW}
    doubled = doubled_program(traced, net.inputs) if few else None
    more = values_per_unit(doubled) if doubled else {}
    few = {path: n for path, n in few.items() if more.get(path, n + 1) > n}
    if few:
        numbers = " to ".join(map(str, sorted({min(few.values()), max(few.values())})))
        warn(
            f"the units of the kernels {listed(few)} are fitted to {numbers} values, one per row "
            f"and position; wanted {FEW} or more: behind a pooling each row has one. The variance "
            "on other rows is (n - 1)/(n - 3) times that of n Gaussian values, which has no bound "
            "up to n = 3. Pass the call some hundred rows; the training may take fewer per "
            "update."
        )


def _layout_of(roles: Roles, paths: set[Path]) -> Layout:
    return layout_at({path: roles.fan_in[path] for path in paths})


def _fitted(net: Reading, raw: PyTree, roles: Roles, factors: PyTree | None) -> PyTree:
    """Returns parameters with fitted units, and with the factors of the branches in force."""
    if factors is None:
        factors = map_entries(lambda _, x: x if is_absent(x) else 1.0, raw)
    at_others = map_entries(lambda path, f: 1.0 if path in roles.fitted else f, factors)
    layout = _layout_of(roles, roles.fitted)

    def fit(raw: PyTree, stddev: PyTree) -> PyTree:
        start = partial(data_dependent_init, net, layout=layout, stddev=stddev)
        return compiled(start, raw, net.inputs)

    raw = fit(scale_branches(raw, at_others), factors)
    if not roles.gated:
        return raw
    sizes = _gate_sizes(net, raw, roles)
    # The layers behind read what the gates leave, so all are fitted once more.
    return fit(raw, map_entries(lambda path, f: f / sizes[path] if path in sizes else f, factors))


def _gate_sizes(net: Reading, raw: PyTree, roles: Roles) -> dict[Path, Any]:
    """Returns the root mean square of the gates behind each kernel that ends a branch.

    That of several is their product. A gate that is 0 everywhere leaves nothing to be fitted: 1.
    """

    def measured(raw: PyTree, *inputs: Any) -> dict[Path, Any]:
        program = net.at(raw, inputs).running(roles.fan_in, nodes=True)
        of_kernel = {path: x for path, x in gates(program).items() if path in roles.gated}
        squares = gate_values(program, of_kernel, lambda gate: jnp.square(promote(gate)).mean())
        return {
            path: nonzero(jnp.sqrt(jnp.stack([squares[gate].mean() for gate in several]).prod()))
            for path, several in of_kernel.items()
        }

    sizes: dict[Path, Any] = compiled(measured, raw, net.inputs)
    return sizes


def _check_finite(raw: PyTree) -> None:
    """Raises ValueError for parameters that the fit made infinite or NaN."""
    bad = [
        path
        for path, x in named_entries(raw)
        if hasattr(x, "dtype")
        and jnp.issubdtype(x.dtype, jnp.floating)
        and not isinstance(x, jax.core.Tracer)
        and not np.isfinite(np.asarray(x, np.float32)).all()
    ]
    if bad:
        raise ValueError(
            f"the parameters {listed(bad)} are infinite or NaN after the fit of the units: the "
            "minibatch, the parameters, or pre-activations of the layers before are not finite. "
            "Look for NaN in the inputs, and for a kernel that the model rounds to fixed levels, "
            "such as its sign, to which no factor gives unit variance."
        )
