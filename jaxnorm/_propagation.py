"""Signal propagation: statistics of each layer's pre-activations and gradients over the rows."""

import math
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree

from jaxnorm._layout import Layout
from jaxnorm._numerics import ROUNDING_ERRORS, promote, quotient, root, rounding_floor
from jaxnorm._paths import Path
from jaxnorm._statistics import batch_moments, kurtosis
from jaxnorm._trace.layers import KernelCall, run_layers
from jaxnorm._trace.queries import traced_layout
from jaxnorm._trace.reading import Reading, of_reading

Scalar = Float[Array, ""]

Values = Float[Array, "rows positions units"]

#: ``loss(output of the model) -> scalar``.
Loss = Callable[[Any], Scalar]

#: By kernel, in execution order: the first kernel of the same scan, and the number of scans around
#: it. Kernels of one scan are listed turn by turn.
Scans = dict[Path, tuple[Path, int]]

#: A unit is dormant if its effect is at most this share of the mean effect of its layer's units.
DORMANT = 0.025


#: The statistics of a layer, in the order of the result: a compiled function sorts them by name.
STATISTICS = (
    *("variance", "squared_mean", "cosine", "dormant", "effective_rank", "kurtosis"),
    *("gradient_variance", "gradient_norm"),
)


@of_reading
def propagation(
    net: Reading,
    params: PyTree = None,
    *inputs: Any,
    loss: Loss | None = None,
    layout: Layout | None = None,
) -> dict[str, Scalar]:
    r"""Flat dict of each layer's signal over the rows of a minibatch, for any logger.

    z is the pre-activation of one unit at one position, with its bias, and g the gradient there.
    For each kernel, under its path (``dense/kernel/variance``):

    - ``variance`` and ``squared_mean``: Var(z) and E[z]^2 over the rows, means over units and
      positions; their sum is the mean square of the pre-activations;
    - ``cosine``: the mean cosine between the pre-activations of two different rows, each row one
      vector over units and positions: the empirical C map. It is near 1 if rows become alike;
    - ``dormant``: the share of units on which the output does not depend. The effect of a unit is,
      to first order, its standard deviation over the rows times the root mean square of g. A unit
      whose effect is at most 0.025 of its layer's mean is dormant: its pre-activation is constant,
      or the activation's derivative is zero in all rows (a rectifier that is always off);
    - ``effective_rank``: (tr K)^2 / tr K^2 of the Gram matrix K of the rows less their mean, a
      lower bound of the number of directions in which rows differ;
    - ``kurtosis``: the mean over units of `kurtosis`; 3 for a Gaussian.

    With a loss also

    - ``gradient_variance``: Var(g) over the rows, a mean over units and positions;
    - ``gradient_norm``: root mean square over the rows of the norm of g over units and positions,
      which layers of any width and resolution preserve if they start as in He et al. 2015.

    Args:
        net: the model, as `read` returns it.
        params: current parameters, if they are not the reading's; nodes are made effective.
        *inputs: the current minibatch and the other arguments, if they are not the reading's.
        loss: a scalar function of the output, for the gradient g. Without a loss, g (for
            ``dormant``) is that of a fixed random linear function of the output.
        layout: which leaves are kernels; None for the reading's.

    Returns:
        Scalars in float32 or wider, in execution order (jit sorts them by name). Layers of a stack
        that the model scans over are numbered: ``layers/kernel/0/variance``. A kernel that is used
        more than once is measured at its first use. Pre-activations that are equal in all rows, to
        rounding, have variance and rank 0; a row of zeros, and a single row, have cosine 0.

    Raises:
        ValueError: as `collect_preactivations`; for an empty minibatch, and for pre-activations
            none of whose axes grows with the rows of the first input.

    The model is traced: call the function inside jit, alone or in a training step. Under jit the
    rows are those of the whole minibatch, however it is sharded; under pmap and shard_map each
    device measures its own rows. Rows that are split along explicit axes of a mesh are measured
    under jit, or inside ``jax.set_mesh``; layers that the model scans over, from JAX 0.10.2 on.

    Example:
        >>> from jaxnorm import read
        >>> params = {"kernel": jnp.eye(2)}
        >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        >>> signal = propagation(read(lambda p, x: jnp.tanh(x @ p["kernel"]), params, x))
        >>> {name.removeprefix("kernel/"): round(float(s), 2) for name, s in signal.items()}
        ... # doctest: +NORMALIZE_WHITESPACE
        {'variance': 0.5, 'squared_mean': 0.0, 'cosine': -0.33, 'dormant': 0.0,
         'effective_rank': 2.0, 'kurtosis': 2.0}

    Source: Poole et al. 2016 (C map); Sokar et al. 2023, definition 3.1, which takes the
    mean activation for a unit's effect (dormant units, with the threshold 0.025); Daneshmand et al.
    2020 (rank, without the mean taken out).
    """
    return measured(net.now(params, inputs), loss, layout)[0]


def measured(
    net: Reading, loss: Loss | None, layout: Layout | None
) -> tuple[dict[str, Scalar], dict[str, int]]:
    """Returns the statistics, and the number of positions of each layer."""
    layout = layout or traced_layout(net)
    scans: Scans = {}

    def run(probes: dict[str, Any]) -> tuple[Scalar, dict[str, Any]]:
        def visit(call: KernelCall, collected: Any) -> tuple[Any, Any]:
            if call.path in collected:
                return call.output, collected[call.path]
            _enter(scans, call, collected)
            return _probed(call, probes)

        output, layers = run_layers(net, layout, visit, bias="included", sample_axes=True)
        objective = _random_function(output) if loss is None else loss(output)
        return objective, {str(path): values for path, (values, _) in layers.items()}

    # The gradient with respect to zeros that are added to the pre-activations is theirs.
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(run, {})[1])
    gradients, layers = jax.grad(run, has_aux=True)(zeros)
    return _by_layer(scans, layers, gradients, _statistics if loss is None else _with_gradient)


def _enter(scans: Scans, call: KernelCall, collected: Any) -> None:
    """Notes the scan of a kernel; inside a scan only kernels of the same turn are collected."""
    before = [scan for path, scan in scans.items() if path in collected][-1:]
    own = (call.path, len(call.turns))
    same = call.turns and before and before[0][1] == own[1]
    scans.setdefault(call.path, before[0] if same else own)


def _probed(call: KernelCall, probes: dict[str, Any]) -> tuple[Any, Any]:
    """Returns a kernel's pre-activations with its probes, and by rows, positions and units."""
    sample_axis = _sample_axis(call)
    rows = jnp.moveaxis(call.output, sample_axis, 0)
    units = math.prod(rows.shape[rows.ndim - len(call.unit_axes) :])
    values = rows.reshape(len(rows), -1, units)
    if probes:
        values = values + probes[str(call.path)][call.turns]
    return jnp.moveaxis(values.reshape(rows.shape), 0, sample_axis), values


def _by_layer(
    scans: Scans, layers: dict[str, Any], gradients: dict[str, Any], statistics: Any
) -> tuple[dict[str, Scalar], dict[str, int]]:
    """Returns the statistics of each layer, of scanned ones turn by turn, and their positions."""
    signal, positions = dict[str, Scalar](), dict[str, int]()
    for (_, depth), group in groupby(scans, scans.__getitem__):
        function = statistics
        for _ in range(depth):
            function = jax.vmap(function)
        stacks = {str(path): function(layers[str(path)], gradients[str(path)]) for path in group}
        for prefix, path, turn in _turns(stacks):
            named = ((name, stacks[path][name]) for name in STATISTICS if name in stacks[path])
            signal |= {f"{prefix}/{name}": values[turn] for name, values in named}
            positions[prefix] = layers[path].shape[-2]
    return signal, positions


def _turns(stacks: dict[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yields the name, the kernel's path and the turn of each layer of the kernels of one scan."""
    for turn in np.ndindex(next(iter(stacks.values()))["cosine"].shape):
        yield from (("/".join([path, *map(str, turn)]), path, turn) for path in stacks)


def _sample_axis(call: KernelCall) -> int:
    if not call.output.size:
        raise ValueError(
            f"the pre-activations of the kernel {call.path!r} have the shape {call.output.shape}: "
            "the minibatch is empty; wanted at least two rows of data."
        )
    if call.sample_axis is None:
        raise ValueError(
            f"the pre-activations of the kernel {call.path!r} have the shape {call.output.shape}, "
            "no axis of which grows with the rows of the first input; wanted rows as the first "
            "axis of the first input, and a model for any number of rows. Or leave the kernel out "
            "of the layout."
        )
    return call.sample_axis


def _random_function(output: PyTree) -> Scalar:
    """Sum of the output times fixed normal numbers."""
    leaves = [promote(x) for x in jax.tree.leaves(output) if jnp.issubdtype(x.dtype, jnp.floating)]
    normal = [jax.random.normal(jax.random.key(i), x.shape) for i, x in enumerate(leaves)]
    products = [(x.astype(jnp.float32) * y).sum() for x, y in zip(leaves, normal, strict=True)]
    return sum(products, jnp.float32(0))


@jax.jit
def _statistics(values: Values, gradient: Values) -> dict[str, Scalar]:
    mean, variance, _ = batch_moments(values, 0)
    # A product rounds by the size of its layer, not by that of its own sum.
    is_constant = variance <= rounding_floor(jnp.abs(mean).max(), 8 * ROUNDING_ERRORS)
    scaled, rows = _scaled(values)[1], len(values)
    directions = quotient(scaled, root(jnp.square(scaled).sum((1, 2), keepdims=True)))
    squares, of_sum = jnp.square(directions).sum(), jnp.square(directions.sum(0)).sum()
    deviation = jnp.where(is_constant[None], 0, scaled - scaled.mean(0, keepdims=True))
    effect = jnp.square(deviation).mean(0)
    effect = jnp.sqrt((effect * jnp.square(_scaled(gradient)[1]).mean(0)).mean(0))
    return {
        "variance": jnp.where(is_constant, 0, variance).mean(),
        "squared_mean": jnp.square(mean).mean(),
        "cosine": (of_sum - squares) / max(rows * (rows - 1), 1),
        "dormant": (effect <= DORMANT * effect.mean()).mean(),
        "effective_rank": _effective_rank(deviation),
        "kurtosis": kurtosis(values, 0).mean(),
    }


def _effective_rank(deviation: Values) -> Scalar:
    """Returns (tr K)^2 / tr K^2 of the rows' Gram matrix K, or of the columns', the smaller one."""

    def rank(deviation: Values) -> Scalar:
        inner = (1, 2) if len(deviation) <= deviation[0].size else (0,)
        gram = jnp.tensordot(deviation, deviation, (inner, inner), precision="highest")
        return quotient(jnp.square(jnp.square(deviation).sum()), jnp.square(gram).sum())

    mesh = jax.typeof(deviation).sharding.mesh
    if mesh.explicit_axes:  # the Gram matrix mixes all shards of the rows
        whole = NamedSharding(mesh, PartitionSpec())
        rank = jax.sharding.auto_axes(rank, out_sharding=whole)
    return rank(deviation)


@jax.jit
def _with_gradient(values: Values, gradient: Values) -> dict[str, Scalar]:
    largest, scaled = _scaled(gradient)
    statistics: dict[str, Scalar] = _statistics(values, gradient)
    return statistics | {
        "gradient_variance": batch_moments(gradient, 0).variance.mean(),
        "gradient_norm": largest * jnp.sqrt(jnp.square(scaled).sum((1, 2)).mean()),
    }


def _scaled(values: Values) -> tuple[Scalar, Values]:
    """Returns the largest size, and the values over it, whose squares do not vanish or overflow."""
    wide = promote(values)
    largest = jnp.abs(wide).max()
    return largest, quotient(wide, largest)
