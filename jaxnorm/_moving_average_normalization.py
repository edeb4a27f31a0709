"""Batch normalization's training in a plain network, in one call."""

import numbers
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from jaxnorm._branches import residual_factors, scale_branches
from jaxnorm._checks import (
    FRACTION,
    all_zero,
    check_no_functions,
    check_number,
    check_params,
    known_values,
)
from jaxnorm._input_means import check_finite_statistics, check_same_tree
from jaxnorm._layout import layout_at
from jaxnorm._moving_averages import (
    MovingAverages,
    Values,
    deviation,
    moved,
    normalized_backward,
)
from jaxnorm._node import Axes, is_node
from jaxnorm._normalizer_free import (
    BRANCHES,
    DATA,
    ZERO_SUMS,
    Applied,
    read_beside_optimizer,
    warn_of_few_values,
    warn_of_no_biases,
    with_zero_sums,
)
from jaxnorm._numerics import added, promote
from jaxnorm._paths import Path, is_absent, listed, map_entries, named_entries
from jaxnorm._roles import Roles, roles_of
from jaxnorm._trace.batch_statistics import warn_of_stored_statistics
from jaxnorm._trace.interpret import Apply, compiled
from jaxnorm._trace.layers import KernelCall, run_layers
from jaxnorm._trace.reading import Reading
from jaxnorm._trace.samples import count_rows

#: Rows of a group from which a minibatch is split into several.
GROUP_ROWS = 32

#: ``apply_in_loss(raw, *inputs)``.
InLoss = Callable[..., Any]


def moving_average_normalization(
    apply: Apply | Reading,
    params: PyTree,
    optimizer: Any = None,
    *inputs: Any,
    heads: Sequence[str] | None = None,
    groups: int | None = None,
    decay: float = 0.9,
    zero_sums: bool = True,
    fitted: bool = True,
) -> tuple[InLoss, PyTree, Applied]:
    """Trains a plain network as batch normalization would: forward pass, start, and optimizer.

    Each hidden kernel is w = γ V / σ and its bias b = β - γ μ / σ, where μ and σ² are moving
    averages of mean and variance of the unit's V x. The optimizer trains V, γ and β, batch
    normalization's parameters. The gradient δ of a product goes on, to the kernel and to the layers
    below, without what would only move the unit's mean and variance,

        δ <- δ - mean(δ) - ŷ mean(δ ŷ),

    where ŷ is the product, standardized by the examples of a group. If the averages were those of
    the same examples, this would be batch normalization to rounding. A kernel without a bias of its
    own, as before a concatenation that was normalized, has no mean to fold: μ is 0, σ² the mean
    square, and mean(δ) stays.

    **Examples interact in the backward pass of the training**: the gradient of an example depends
    on the others of its group. In the forward pass, in evaluation and in what is exported they
    never interact, and the model has no state.

    **Which call.** This one; `normalizer_free` with fewer than about 16 rows per step, of which
    statistics are noise, or if examples may not interact in the backward pass either (privacy,
    gradients per example, online reinforcement learning).

    Args:
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters,
            without batch normalization, and with biases in the layers that it followed, as for
            `normalizer_free`. Or a reading in the place of ``apply``, ``params`` and ``*inputs``:
            ``moving_average_normalization(net, optimizer)``.
        params: its random parameters, plain.
        optimizer: any optax transformation, clipping, momentum and weight decay included. Those
            that keep copies of the parameters to be read, ``optax.lookahead`` and
            ``schedule_free``, belong outside: ``schedule_free(tx, ...)``.
        *inputs: a minibatch of some hundred rows, and the remaining arguments of ``apply``.
        heads: regular expressions, searched for in the ``/``-joined paths, of the kernels that make
            results and stay as they are; None as in `normalizer_free`.
        groups: the number of groups of rows, of the first array of the inputs, whose statistics the
            backward pass takes out; None for groups of 32 rows, or of the smallest larger size that
            divides the rows, and for one group where a layer's rows and positions share an axis.
            The averages are of all rows. Under jit with a sharded batch no device waits for others
            if each has whole groups.
        decay: the share of the averages that stays at an update; 1 keeps those of the start.
        zero_sums: if True, the V of hidden kernels are zero-sum per unit, and stay so, except where
            units read one feature, such as those of depthwise kernels, or the inputs themselves, as
            in `normalizer_free`: the mean of a unit then hardly moves with the layers below
            (`zero_sum_projection`). Units do not see the mean of what a layer made, which may be
            what tells classes apart where layers are narrow, as in a network of point clouds.
        fitted: if True, hidden units start as under batch normalization: γ is 1, over the root of
            the number of branches where a branch ends, and β is 0. If False, the network starts as
            the function that ``params`` make, as after `fold_batch_norm`, and has no zero sums.

    Returns:
        ``(apply_in_loss, raw, tx)``. ``apply_in_loss(raw, *inputs)`` goes into the loss; evaluation
        and export take ``apply(effective(raw), *inputs)``, of the same values. Train as ever:
        ``gradients = jax.grad(loss)(raw)``, ``updates, state = tx.update(gradients, state, raw)``,
        ``raw = optax.apply_updates(raw, updates)``.

        ``raw`` has a node at each hidden kernel, with the leaves direction (V), scale (γ), and
        averages and a count, which ``optimizer`` never sees: no decay, no momentum. They are
        stored times 2^-60, so that norms of all parameters, and penalties on all, do not see them
        either. In the place of b the optimizer sees β. Its masks and labels may be functions of the
        tree, or trees of the structure of ``raw``.

        The gradients of averages and count are sums over the examples, times 2^-60: so they may be
        summed or averaged over devices, micro-batches (``optax.MultiSteps``) and several calls in
        one loss, scaled and clipped with all others, and an average still is one. They have to
        stay float32 or bfloat16: in float16 they are 0. Masked rows still count. Noise on gradients
        is taken for statistics: put it into ``optimizer``.

    Raises:
        ValueError: if no kernel can be normalized, since every one makes a result for example, for
            kernels that start at zero, as those of a transformation that starts as the identity,
            or that the model rounds to fixed levels (neither under jit), for statistics that are
            not finite, and as `normalizer_free`; in the loss, for the ``raw`` of another model, if
            groups do not divide the rows, or if a group has fewer than 3 values of a unit, of which
            no gradient is left.
        TypeError: if ``optimizer`` is not an optax transformation, ``apply`` is not a function,
            ``decay`` is not a number, or ``groups`` not an integer; for plain parameters in the
            place of ``raw``.

    Warns:
        UserWarning: as `normalizer_free`, of few values per unit, of stored statistics, and if no
            hidden layer has a bias.

    Heads, gates with fewer entries than what they multiply, recurrent kernels and ragged products
    stay plain parameters. A kernel that is used several times has one average. A scale of 0 never
    trains. Keep parameters in float32 and cast them in the loss: β is known to the rounding of b,
    which in bfloat16 is coarser than a step. Derivatives exist in reverse mode alone.

    Under pmap and shard_map the groups are within a device's rows: no collective but that of the
    gradients, sums or means, which the averages need too. Under jit with a sharded batch likewise,
    if each device has whole groups.

    Example:
        >>> import jax
        >>> def apply(params, x):
        ...     x = jax.nn.relu(x @ params["a"]["kernel"] + params["a"]["bias"][None])
        ...     return x @ params["b"]["kernel"] + params["b"]["bias"][None]
        >>> layer = {"kernel": jax.random.normal(jax.random.key(0), (8, 8)), "bias": jnp.ones(8)}
        >>> x = jax.random.normal(jax.random.key(1), (64, 8))
        >>> apply_in_loss, raw, tx = moving_average_normalization(
        ...     apply, {"a": layer, "b": layer}, optax.sgd(0.1), x
        ... )
        >>> loss = lambda raw: (apply_in_loss(raw, x) ** 2).mean()
        >>> updates, state = tx.update(jax.grad(loss)(raw), tx.init(raw), raw)
        >>> bool(loss(optax.apply_updates(raw, updates)) < loss(raw))
        True

    Source: Ioffe and Szegedy 2015 (batch normalization); Yan et al. 2020 (moving averages in the
    place of its statistics, MABN). A forward pass folded into the kernels, and statistics that
    travel with the gradients, are this library's.
    """
    check_number(decay, FRACTION, "decay", "0.9 for example")
    _check_groups(groups)
    net, optimizer = read_beside_optimizer(apply, params, optimizer, inputs)
    roles = roles_of(net, heads)
    _check_some(roles)
    warn_of_no_biases(roles)
    warn_of_few_values(net, roles)
    warn_of_stored_statistics(roles.normalized)
    fan_in = {path: roles.fan_in[path] for path in sorted(roles.fitted)}
    biases = {path: bias for path, bias in roles.biases.items() if path in fan_in}
    _check_plain(net, fan_in)
    _check_nonzero(net, fan_in)
    _check_rounded(net, fan_in, biases)
    factors = residual_factors(net) if fitted else None
    done = (DATA, BRANCHES) if fitted else ()
    if fitted and zero_sums and (paths := roles.zero_sums & fan_in.keys()):
        net, optimizer = with_zero_sums(net, optimizer, layout_at({p: fan_in[p] for p in paths}))
        done = *done, ZERO_SUMS
    raw = _started(net, fan_in, biases, factors)
    tx = Applied.of(_optimizer(optimizer, fan_in.keys(), biases, decay), done)
    return _in_loss(net, fan_in, biases, groups), raw, tx


def _check_groups(groups: int | None) -> None:
    if groups is not None and not (isinstance(groups, numbers.Integral) and groups >= 1):
        raise ValueError(f"groups is {groups!r}; wanted an integer from 1, or None.")


def _check_some(roles: Roles) -> None:
    """Raises ValueError if no kernel can be normalized."""
    if not roles.fitted:
        raise ValueError(
            f"of the kernels {listed(roles.fan_in)} none can be normalized: "
            f"{listed(sorted(roles.heads))} make results (pass heads=() if these are hidden layers "
            "of a larger network), and others are used at every turn of a loop, as in a recurrent "
            "cell, inside a branch or a shard_map, in gates, or not in products alone."
        )


def _check_plain(net: Reading, paths: Iterable[Path]) -> None:
    """Raises TypeError for kernels that are reparametrized already."""
    entries = dict(named_entries(net.params))
    nodes = [path for path in paths if is_node(entries[path])]
    if nodes:
        raise TypeError(
            f"the kernels {listed(nodes)} are reparametrized; wanted plain ones, of which the call "
            "makes MovingAverages: pass effective(params)."
        )


def _check_nonzero(net: Reading, paths: Iterable[Path]) -> None:
    """Raises ValueError for kernels that are zero: any step would be taken to variance 1."""
    entries = dict(named_entries(net.params))
    if zeros := [path for path in paths if all_zero(entries[path])]:
        raise ValueError(
            f"the kernels {listed(zeros)} are all zero, so that their products have no variance, "
            "and the first update, however small, would be divided by next to nothing. Give them "
            "random weights: the call makes the ends of residual branches quiet by itself. A "
            "kernel that has to start at zero, such as that of a predicted transformation, stays "
            "as it is if it is named among heads, beside those that make results."
        )


def _check_rounded(net: Reading, fan_in: dict[Path, Axes], biases: dict[Path, Path]) -> None:
    """Raises ValueError for kernels that the model rounds to a scale of its own.

    γ / σ is inside of the rounding: a product that does not follow it moves σ without end.
    """
    uses = (layer.product.use for layer in net.program().layers.values())
    rounded = {use.kernel.path for use in uses if use.kernel.rounded} & fan_in.keys()
    if not rounded:
        return
    halves = map_entries(lambda path, x: x / 2 if path in rounded else x, net.params)
    ones = dict.fromkeys(fan_in, 1.0)
    whole, half = (
        _statistics(each, fan_in, biases, ones) for each in (net, net.at(halves, net.inputs))
    )
    known = {path: [known_values(x[path][1]) for x in (whole, half)] for path in rounded}
    pairs = {path: (a, b) for path, (a, b) in known.items() if a is not None and b is not None}
    if off := [path for path, (a, b) in pairs.items() if (abs(4 * b - a) > 0.1 * a).any()]:
        raise ValueError(
            f"the model rounds the kernels {listed(sorted(off))} to levels that do not follow the "
            "kernel's size (the sign of a kernel has no size, and fixed levels have their own), so "
            "that dividing the kernel by a standard deviation does not divide the product. Wanted "
            "a rounding whose scale follows the kernel's, such as the sign times the mean size of "
            "a unit's weights; or name them as heads, which stay as they are."
        )


def _in_loss(
    net: Reading, fan_in: dict[Path, Axes], biases: Collection[Path], groups: int | None
) -> InLoss:
    """Returns the model with batch normalization's backward pass at these kernels.

    The means of kernels that are not in ``biases`` stay.
    """
    layout = layout_at(fan_in)

    def apply_in_loss(raw: PyTree, *inputs: Any) -> Any:
        _check_known(raw, fan_in)
        nodes = {path: x for path, x in named_entries(raw) if path in fan_in}
        _check_nodes(nodes, "apply_in_loss")
        plain = map_entries(lambda path, x: nodes[path].frozen() if path in nodes else x, raw)
        number = _group_count(count_rows(inputs), groups)

        def visit(call: KernelCall, _: Any) -> tuple[Values, Any]:
            if groups is not None and number > 1:
                _check_rows(call)
            has_mean = call.path in biases
            return normalized_backward(call, nodes[call.path], number, has_mean), ()

        at_these = net.at(plain, inputs)
        return run_layers(at_these, layout, visit, sample_axes=number > 1)[0]

    return apply_in_loss


def _check_rows(call: KernelCall) -> None:
    """Raises ValueError for a product whose rows cannot be told apart from positions."""
    if call.sample_axis is None:
        raise ValueError(
            f"the product of the kernel {call.path!r} has the shape {call.output.shape}, none of "
            "whose axes counts the rows of the first input alone, so that they cannot be grouped. "
            "Keep rows and positions in axes of their own, or pass groups=1."
        )


def _check_known(raw: PyTree, paths: Collection[Path]) -> None:
    """Raises ValueError for averages that this function does not measure."""
    nodes = [path for path, x in named_entries(raw) if isinstance(x, MovingAverages)]
    if others := [path for path in nodes if path not in paths]:
        raise ValueError(
            f"apply_in_loss got MovingAverages at {listed(others)}, where the model that it was "
            "made from has no layer to normalize; wanted raw of the same call of "
            "moving_average_normalization. Another form of a network may have other layers: make "
            "both of one."
        )


def _check_nodes(entries: dict[Path, Any], name: str) -> None:
    """Raises TypeError for plain kernels in the place of raw parameters."""
    for path, x in entries.items():
        if not isinstance(x, MovingAverages) or any(map(is_absent, x.arrays().values())):
            raise TypeError(
                f"{name} got a {type(x).__name__} at {path!r}; wanted the tree raw that "
                "moving_average_normalization returned, with a whole MovingAverages there. In "
                "evaluation call apply(effective(raw), *inputs); masks belong to the optimizer "
                "that you pass to the call."
            )


def _group_count(rows: int, groups: int | None) -> int:
    """Returns the number of groups of equal size; by default each has `GROUP_ROWS` rows or more."""
    if groups is None:
        return next((n for n in range(rows // GROUP_ROWS, 1, -1) if rows % n == 0), 1)
    if rows % groups:
        raise ValueError(
            f"groups={groups} does not divide the {rows} rows of the first input; wanted groups of "
            "as many rows each. Drop the last rows, or choose another number of groups."
        )
    return groups


def _started(
    net: Reading, fan_in: dict[Path, Axes], biases: dict[Path, Path], factors: PyTree | None
) -> PyTree:
    """Returns raw parameters whose averages are statistics of the reading's inputs."""
    if factors is not None:
        others = map_entries(lambda path, f: 1.0 if path in fan_in else f, factors)
        net = net.at(scale_branches(net.params, others), net.inputs)
    scales = None if factors is None else dict(named_entries(factors))
    statistics = _statistics(net, fan_in, biases, scales)
    entries = dict(named_entries(net.params))
    nodes = {
        path: _node(entries[path], axes, statistics[path], scales and scales[path])
        for path, axes in fan_in.items()
    }
    raw = map_entries(lambda path, x: nodes.get(path, x), net.params)
    if factors is None:
        return raw
    shifts = {bias: jnp.zeros_like(entries[bias]) for bias in biases.values()}
    return _with_offsets(map_entries(lambda path, x: shifts.get(path, x), raw), nodes, biases, -1)


def _statistics(
    net: Reading,
    fan_in: dict[Path, Axes],
    biases: dict[Path, Path],
    scales: dict[Path, Any] | None,
) -> dict[Path, tuple[Values, Values]]:
    """Returns mean and variance of the products of each kernel; without a bias 0 and mean square.

    With ``scales`` each product goes on as batch normalization would return it, with β = 0.
    """
    layout = layout_at(fan_in)

    def measured(params: PyTree, *inputs: Any) -> Any:
        plain = dict(named_entries(params))

        def visit(call: KernelCall, collected: Any) -> tuple[Values, Any]:
            y, rows, bias = promote(call.output), call.positions, biases.get(call.path)
            mean = jnp.zeros(call.units, y.dtype) if bias is None else y.mean(rows)
            expanded = partial(jnp.expand_dims, axis=rows)
            variance = jnp.square(y - expanded(mean)).mean(rows)
            found = collected.get(call.path, (mean, variance))
            if scales is None:
                return call.output, found
            y = (y - expanded(found[0])) * expanded(scales[call.path] / deviation(found[1]))
            if bias is not None:
                y = y - expanded(call.of_layer(promote(plain[bias]), plain[call.path]))
            return y.astype(call.output.dtype), found

        found = run_layers(net.at(params, inputs), layout, visit, only_products=True)[1]
        return {path: values for path, (values, _) in found.items()}

    statistics: dict[Path, tuple[Values, Values]] = compiled(measured, net.params, net.inputs)
    for index in (0, 1):
        several = {path: values[index] for path, values in statistics.items()}
        check_finite_statistics(several, "moving_average_normalization")
    return statistics


def _node(
    kernel: Values, fan_in: Axes, statistics: tuple[Values, Values], scale: Any
) -> MovingAverages:
    """Returns the node with these averages; of the same function as the kernel without a scale."""
    node = MovingAverages.from_kernel(kernel, fan_in)
    mean, variance = (x.reshape(node.count.shape) for x in statistics)
    node = node.with_averages(mean, variance)
    scales = node.std() if scale is None else jnp.full_like(node.count, scale)
    return node.replaced(scale=scales.astype(node.scale.dtype))


def _optimizer(
    optimizer: optax.GradientTransformation,
    kernels: Collection[Path],
    biases: dict[Path, Path],
    decay: float,
) -> optax.GradientTransformationExtraArgs:
    """Returns the optimizer of V, γ and β, which moves averages and biases along."""
    inner = optax.with_extra_args_support(optimizer)

    def init(raw: PyTree) -> Any:
        check_same_tree(kernels, raw, "init of moving_average_normalization")
        nodes = _nodes(raw, kernels, biases)
        return inner.init(_trained(_with_offsets(raw, nodes, biases, 1), nodes))

    def update(
        updates: PyTree, state: Any, params: PyTree | None = None, **extra: Any
    ) -> tuple[PyTree, Any]:
        check_params(params, "moving_average_normalization")
        check_no_functions(extra, "moving_average_normalization")
        nodes, gradients = _nodes(params, kernels, biases), dict(named_entries(updates))
        shifted = _with_offsets(params, nodes, biases, 1)
        steps, state = inner.update(
            _trained(updates, nodes), state, _trained(shifted, nodes), **extra
        )
        after = {path: moved(node, gradients[path], decay) for path, node in nodes.items()}
        return _with_averages(steps, nodes, after, biases), state

    return optax.GradientTransformationExtraArgs(init, update)


def _nodes(
    raw: PyTree, kernels: Collection[Path], biases: dict[Path, Path]
) -> dict[Path, MovingAverages]:
    """Returns the nodes of a tree whose biases it has too: a mask may hide some."""
    present = {path: x for path, x in named_entries(raw) if not is_absent(x)}
    nodes = {p: present[p] for p in kernels if {p, biases.get(p, p)} <= present.keys()}
    _check_nodes(nodes, "the optimizer of moving_average_normalization")
    return nodes


def _trained(raw: PyTree, nodes: Collection[Path]) -> PyTree:
    """Returns the tree without averages, as the optimizer sees it."""
    hidden = optax.MaskedNode()

    def entry(path: Path, x: Any) -> Any:
        if path not in nodes:
            return x
        return x.replaced(stored_mean=hidden, stored_variance=hidden, count=hidden)

    return map_entries(entry, raw)


def _with_offsets(
    raw: PyTree, nodes: dict[Path, MovingAverages], biases: dict[Path, Path], sign: int
) -> PyTree:
    """Returns the tree with b + sign γ μ / σ in the place of each bias b."""
    offsets = {bias: sign * nodes[path].offset() for path, bias in biases.items() if path in nodes}
    return map_entries(lambda path, x: added(x, offsets[path]) if path in offsets else x, raw)


def _with_averages(
    steps: PyTree,
    before: dict[Path, MovingAverages],
    after: dict[Path, MovingAverages],
    biases: dict[Path, Path],
) -> PyTree:
    """Returns steps of V, γ and β as steps of ``raw``, with those of averages and biases."""
    entries = dict(named_entries(steps))
    offsets = {}
    for path, node in before.items():
        if path in biases:
            scale = optax.apply_updates(node.scale, entries[path].scale)
            offsets[biases[path]] = node.offset() - after[path].replaced(scale=scale).offset()

    def entry(path: Path, step: Any) -> Any:
        if path in offsets:
            return added(step, offsets[path])
        if path not in before:
            return step
        node, new = before[path], after[path]
        return step.replaced(
            stored_mean=new.stored_mean - node.stored_mean,
            stored_variance=new.stored_variance - node.stored_variance,
            count=jnp.zeros_like(node.count),
        )

    return map_entries(entry, steps)
