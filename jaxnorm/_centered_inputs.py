"""Optimizers in coordinates in which the inputs of each kernel have mean zero."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from jaxnorm._axes import per_unit, unit_shape
from jaxnorm._checks import FRACTION, check_no_functions, check_number, check_optimizer
from jaxnorm._input_means import (
    ByPath,
    Pairs,
    averaged,
    check_finite_statistics,
    check_same_tree,
    measured,
    pairs_of,
)
from jaxnorm._layout import Layout
from jaxnorm._momenta import map_momenta
from jaxnorm._node import Axes
from jaxnorm._numerics import added, wide_dtype
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries
from jaxnorm._trace.interpret import compiled
from jaxnorm._trace.reading import Reading, of_reading
from jaxnorm._trace.samples import count_rows

Values = Float[Array, "..."]

#: Rows over which input means are averaged, at least.
AVERAGED_ROWS = 640


class CenteredInputsState(NamedTuple):
    """State of `centered_inputs`.

    Attributes:
        means: the parameters' structure with the input means C of each kernel that has a bias of
            its own, as `input_means` returns them; MaskedNode elsewhere.
        inner_state: the state of the wrapped optimizer.
    """

    means: PyTree
    inner_state: Any


@of_reading
def centered_inputs(
    net: Reading,
    optimizer: optax.GradientTransformation,
    *,
    layout: Layout | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Wraps an optimizer: it trains in coordinates in which each kernel's inputs have mean zero.

    With C, the `input_means` of a kernel W, a layer W x + b is W (x - C) + b', b' = b + W C. The
    optimizer sees the parameters (W, b') and their gradients,

        g_W <- g_W - C g_b,    b' = b + sum(W C),    and gives back    u_b <- u_b - sum(u_W C),

    sums over the fan-in. So the function moves as if the layer subtracted its inputs' mean, as
    batch normalization does in its backward pass; but the forward pass does not change, no row sees
    another, and C is a constant between two calls of `refresh_input_means`. This is exact for every
    optimizer: it is training W (x - C) + b' with W and b' as parameters. A projection of the
    kernels (`zero_sum_projection`), clipping and `centered_gradient` belong inside.

    Args:
        net: the model, as `read` returns it, at plain parameters and at the minibatch on which the
            first C are measured.
        optimizer: any optax transformation. Decay of biases, adaptive clipping and layer-wise rates
            see b', the mean pre-activation, in the place of b.
        layout: the kernels whose inputs are centered, if they have a bias of their own; None for
            the reading's. Other kernels are left alone: without a bias, with one that comes after a
            gain or that other kernels share, or reparametrized ones. A bias that the optimizer
            freezes moves all the same: leave its kernel out, with `exclude`, unless
            ``optax.partition`` or ``optax.masked`` outside hide it.

    Returns:
        A transformation whose state has C beside the optimizer's own state. Without ``params`` it
        works for optimizers that need none. Schedules, ``MultiSteps`` and ``apply_if_finite`` work
        outside and inside. Parameters that an optimizer keeps to be read (the average of
        ``schedule_free``, the copies of ``lookahead``) have b' inside, in the place of b: put these
        wrappers outside, ``schedule_free(tx, ...)``.

    Raises:
        ValueError: if no kernel has a bias of its own, and if the inputs' means are not finite; in
            ``init``, for a tree with the kernels at other paths than in the reading, such as
            ``optax.LookaheadParams``; in ``update``, for extra arguments that are functions of the
            parameters (line searches, the opaque mode of SAM): they would be called with parameters
            in other coordinates.
        TypeError: if ``optimizer`` is not an optax transformation, or ``net`` is not a reading.

    Under jit, pmap and shard_map with replicated parameters every device does the same, with no
    collective; kernels sharded along their fan-in cost one all-reduce each. Under pmap call it
    before the parameters are replicated. A step costs two passes over each kernel's update.

    Example:
        >>> from jaxnorm import read
        >>> params = {"kernel": jnp.ones((2, 1)), "bias": jnp.zeros(1)}
        >>> apply = lambda p, x: x @ p["kernel"] + p["bias"][None]
        >>> x = jnp.array([[1.0, 2.0], [1.0, 4.0]])
        >>> tx = centered_inputs(read(apply, params, x), optax.sgd(1.0))
        >>> gradient = jax.grad(lambda p: apply(p, x).sum())(params)
        >>> update, _ = tx.update(gradient, tx.init(params), params)
        >>> update["bias"].tolist()  # the kernel's is zero: its centered inputs cancel
        [-2.0]

    Source: LeCun et al. 1998 (centered inputs); Schraudolph 1998 (centered gradients); Raiko et al.
    2012; Wiesler et al. 2014 (mean-normalized stochastic gradients). In the preconditioner of
    Kronecker factors (Martens and Grosse 2015) it is the part of the homogeneous coordinate.
    """
    check_optimizer(optimizer)
    pairs = pairs_of(net, layout)
    if not pairs:
        raise ValueError(
            "no kernel has a bias of its own that the model adds to its product directly, so there "
            "is nothing to make up for a mean of the inputs. Give the layers a bias "
            "(use_bias=True), or leave centered_inputs out."
        )

    def means_of(params: PyTree, *inputs: Any) -> ByPath:
        return measured(net.at(params, inputs).running(pairs), pairs)

    first = compiled(means_of, net.params, net.inputs)
    check_finite_statistics(first, "centered_inputs")
    inner = optax.with_extra_args_support(optimizer)

    def init(params: PyTree) -> CenteredInputsState:
        check_same_tree(pairs, params, "init of centered_inputs")
        present = _present(pairs, params)
        means = map_entries(
            # The state's own: donated, it would take the optimizer's array with it.
            lambda path, _: jnp.copy(first[path]) if path in present else optax.MaskedNode(),
            params,
        )
        return CenteredInputsState(means, inner.init(_shifted(params, means, pairs, 1)))

    def update(
        updates: PyTree, state: CenteredInputsState, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, CenteredInputsState]:
        check_no_functions(extra, "centered_inputs")
        means = state.means
        present = dict(_entries(means)).keys() & pairs.keys()
        check_same_tree(
            {path: pairs[path] for path in present}, updates, "update of centered_inputs"
        )
        gradients = _covector(updates, means, pairs)
        shifted = None if params is None else _shifted(params, means, pairs, 1)
        steps, inner_state = inner.update(gradients, state.inner_state, shifted, **extra)
        return _shifted(steps, means, pairs, -1), CenteredInputsState(means, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


@of_reading
def refresh_input_means(
    net: Reading,
    opt_state: PyTree,
    params: PyTree = None,
    *inputs: Any,
    decay: float | Float[Array, ""] | None = None,
    axis_name: Hashable | None = None,
) -> PyTree:
    """Moves the input means of `centered_inputs` towards those of a minibatch.

    C <- d C + (1 - d) `input_means`(params, inputs), and the momentum is carried over into the new
    coordinates: m_W <- m_W - (C_new - C_old) m_b, for averages and sums of gradients: the momentum
    of SGD, the first moments of Adam and its relatives (Lion, AdEMAMix, Prodigy), what
    ``MultiSteps`` accumulates inside. Second moments, averages of steps that are rescaled already
    (NovoGrad, Adafactor), copies of the parameters (schedule-free optimizers), and momenta of
    kernels whose biases have another optimizer (Muon, ``optax.partition``) cannot be carried over
    and stay as they are: with those refresh slowly, by a ``decay`` near 1. The momentum of
    ``optax.rmsprop`` and ``optax.lars``, which averages rescaled steps under the name of SGD's, is
    carried over as if it averaged gradients.

    Args:
        net: the model, as `read` returns it, with the ``as_inputs`` with which the optimizer was
            made.
        opt_state: the state of any optimizer that contains a `centered_inputs`.
        params: current parameters, if they are not the reading's; nodes are made effective.
        *inputs: the current minibatch and the other arguments, if they are not the reading's.
        decay: d, from 0 (only this minibatch) to 1 (no change); None for 0.9, and for 1 - n/640 if
            the first input has fewer than 64 rows n, on all devices of ``axis_name`` together. The
            noise of the means of a few rows is fed back through the weights, and a training may
            diverge of it: the average should span some hundreds of rows.
        axis_name: under pmap and shard_map, the axis of the devices, over which means are averaged.

    Returns:
        The state with the new means; those that are not finite on this minibatch, as for a row of
        NaN whose step ``apply_if_finite`` skips, stay as they were. A pure function: call it inside
        a jitted step, at every step or every some steps.

    Raises:
        ValueError: if the state contains no `centered_inputs`, for a decay outside of [0, 1], and
            if the model does not use a kernel whose means the state has as before.
        TypeError: if ``net`` is not a reading, or ``decay`` is not a number.

    Means are measured in float32 or wider. Under jit they are those of the whole minibatch, however
    it is sharded; under pmap and shard_map those of the device's own rows, unless ``axis_name``
    averages them.

    Example:
        >>> from jaxnorm import read
        >>> params = {"kernel": jnp.ones((2, 1)), "bias": jnp.zeros(1)}
        >>> apply = lambda p, x: x @ p["kernel"] + p["bias"][None]
        >>> net = read(apply, params, jnp.zeros((1, 2)))
        >>> state = centered_inputs(net, optax.sgd(1.0)).init(params)
        >>> refresh_input_means(net, state, params, jnp.ones((1, 2)), decay=0.5).means["kernel"]
        Array([[0.5],
               [0.5]], dtype=float32)

    Source: ours; the coordinates are those of the sources of `centered_inputs`.
    """
    net = net.now(params, inputs)
    if decay is None:
        decay = default_decay(net.inputs, axis_name)
    check_number(decay, FRACTION, "decay", "0.9 for example")
    states = [x for x in jax.tree.leaves(opt_state, is_leaf=_is_state) if _is_state(x)]
    if not states:
        raise ValueError(
            "the state contains no centered_inputs, so there are no input means to refresh. Pass "
            "the state of centered_inputs(net, optimizer), or of the optimizer that "
            "normalizer_free returns."
        )
    pairs = _kept(pairs_of(net, None), states)
    values = measured(net.running(pairs), pairs, axis_name)

    def refreshed(x: Any) -> Any:
        if not _is_state(x):
            return x
        means = averaged(x.means, values, decay)
        change = jax.tree.map(jnp.subtract, means, x.means)
        return CenteredInputsState(means, _carried(x.inner_state, change, net.params, pairs))

    return jax.tree.map(refreshed, opt_state, is_leaf=_is_state)


def default_decay(inputs: tuple[Any, ...], axis_name: Hashable | None) -> float:
    """Returns the share of the old means that stays: an average over at least `AVERAGED_ROWS`."""
    devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
    return max(0.9, 1 - count_rows(inputs) * devices / AVERAGED_ROWS)


def _kept(pairs: Pairs, states: list[CenteredInputsState]) -> Pairs:
    """Returns the pairs of the kernels that the states have means of."""
    kept = set().union(*(dict(_entries(state.means)) for state in states))
    if missing := sorted(kept - pairs.keys()):
        raise ValueError(
            f"the state has input means of {listed(missing)}, which this function does not multiply"
            " with its inputs, with a bias of its own, as it did when the optimizer was made. Pass "
            "a reading of the same function, with the same as_inputs=, to both."
        )
    return {path: pair for path, pair in pairs.items() if path in kept}


def _is_state(x: Any) -> bool:
    return isinstance(x, CenteredInputsState)


def _carried(state: Any, change: PyTree, params: PyTree, pairs: Pairs) -> Any:
    """Returns an optimizer's state with its averages of gradients in the new coordinates."""

    def moved(average: PyTree) -> PyTree:
        return _covector(average, change, _of_shape(pairs, average, params))

    return map_momenta(moved, state)


def _of_shape(pairs: Pairs, tree: PyTree, params: PyTree) -> Pairs:
    """Returns the pairs whose kernel has its own shape in a tree: a projected gradient has not."""
    shapes, own = ({path: np.shape(x) for path, x in _entries(t)} for t in (tree, params))
    return {path: pair for path, pair in pairs.items() if shapes.get(path) == own.get(path)}


def _entries(tree: PyTree) -> list[tuple[Path, Any]]:
    return [(path, x) for path, x in named_entries(tree) if not is_absent(x)]


def _present(pairs: Pairs, tree: PyTree) -> Pairs:
    """Returns the pairs of which a tree has both leaves: a mask may have removed some."""
    paths = {path for path, _ in _entries(tree)}
    return {path: pair for path, pair in pairs.items() if {path, pair.bias} <= paths}


def _covector(gradients: PyTree, means: PyTree, pairs: Pairs) -> PyTree:
    """Returns gradients, or averages of them, in the coordinates (W, b'): g_W - C g_b."""
    entries, constants = dict(named_entries(gradients)), dict(_entries(means))

    def edited(path: Path, g: Any) -> Any:
        if path not in present or path not in constants:
            return g
        pair = present[path]
        wide, constant, bias = _wide(g, constants[path], entries[pair.bias])
        per_kernel = per_unit(bias.reshape(unit_shape(g, pair.fan_in)), pair.fan_in)
        return (wide - constant * per_kernel).astype(g.dtype)

    present = _present(pairs, gradients)
    return map_entries(edited, gradients)


def _shifted(params: PyTree, means: PyTree, pairs: Pairs, sign: int) -> PyTree:
    """Returns parameters or updates with b + sign sum(W C) in the place of b."""
    entries, constants = dict(named_entries(params)), dict(_entries(means))

    def offset(path: Path, fan_in: Axes) -> Values:
        weights, constant = _wide(entries[path], constants[path])
        return sign * (weights * constant).sum(fan_in)

    present = {path: x for path, x in _present(pairs, params).items() if path in constants}
    offsets = {pair.bias: offset(path, pair.fan_in) for path, pair in present.items()}
    return map_entries(lambda path, x: added(x, offsets[path]) if path in offsets else x, params)


def _wide(*arrays: Values) -> list[Values]:
    """Returns the arrays in one type, float32 or wider."""
    return [x.astype(wide_dtype(*(y.dtype for y in arrays))) for x in arrays]
