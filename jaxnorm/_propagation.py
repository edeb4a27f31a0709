"""Signal propagation: statistics of each layer's pre-activations and gradients over the rows."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree

from jaxnorm._branches import residual_factors
from jaxnorm._describe import aligned
from jaxnorm._layout import Layout
from jaxnorm._numerics import ROUNDING_ERRORS, promote, quotient, root, rounding_floor
from jaxnorm._paths import Path, is_absent, named_entries
from jaxnorm._reparametrize import effective
from jaxnorm._statistics import batch_moments, kurtosis
from jaxnorm._trace.interpret import Apply
from jaxnorm._trace.layers import KernelCall, run_layers
from jaxnorm._trace.queries import traced_layout

Scalar = Float[Array, ""]

Values = Float[Array, "rows positions units"]

#: ``loss(output of the model) -> scalar``.
Loss = Callable[[Any], Scalar]

#: Statistics of the layers by name, in execution order.
Layers = dict[str, dict[str, float]]

#: A unit is dormant if its effect is at most this share of the mean effect of its layer's units.
DORMANT = 0.025

#: Limits for the hidden layers: the change of pre-activations and of gradients from the first to
#: the last, up or down; the mean cosine between rows; the share of dormant units.
CHANGE, COSINE, SHARE = 10.0, 0.93, 0.5

#: Limits for the growth of pre-activations, and of gradients on the way back, over all branches.
BRANCHES_FORWARD, BRANCHES_BACKWARD = 2.0, 3.0


def propagation(
    apply: Apply,
    params: PyTree,
    *inputs: Any,
    loss: Loss | None = None,
    layout: Layout | None = None,
    free: Sequence[str] = (),
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
        apply: ``apply(params, *inputs)``, any library's model as a function of plain parameters;
            for NNX ``lambda params, x: functional.apply(params, state, x, train=True)[0]``.
        params: the parameters; reparametrized kernels are made effective first.
        *inputs: a minibatch, and the remaining arguments of ``apply``.
        loss: a scalar function of the output, for the gradient g. Without a loss, g (for
            ``dormant``) is that of a fixed random linear function of the output.
        layout: which leaves are kernels; None for `traced_layout`.
        free: as in `traced_layout`.

    Returns:
        Scalars in float32 or wider, in execution order (jit sorts them by name). Layers of a stack
        that the model scans over are numbered: ``layers/kernel/0/variance``. A kernel that is used
        more than once is measured at its first use. Pre-activations that are equal in all rows, to
        rounding, have variance and rank 0; a row of zeros, and a single row, have cosine 0.

    Raises:
        ValueError: as `collect_preactivations`; and for pre-activations none of whose axes grows
            with the rows of the first input.

    The model is traced: call the function inside jit, alone or in a training step. Under jit the
    rows are those of the whole minibatch, however it is sharded; under pmap and shard_map each
    device measures its own rows. Rows that are split along explicit axes of a mesh are measured
    under jit, or inside ``jax.set_mesh``; layers that the model scans over, from JAX 0.10.2 on.

    Example:
        >>> params = {"kernel": jnp.eye(2)}
        >>> x = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
        >>> signal = propagation(lambda p, x: jnp.tanh(x @ p["kernel"]), params, x)
        >>> {name.removeprefix("kernel/"): round(float(s), 2) for name, s in signal.items()}
        ... # doctest: +NORMALIZE_WHITESPACE
        {'variance': 0.5, 'squared_mean': 0.0, 'cosine': -0.33, 'dormant': 0.0,
         'effective_rank': 2.0, 'kurtosis': 2.0}

    Source: Poole et al. 2016 (C map); Sokar et al. 2023, definition 3.1, which takes the
    mean activation for a unit's effect (dormant units, with the threshold 0.025); Daneshmand et al.
    2020 (rank, without the mean taken out).
    """
    layout = layout or traced_layout(apply, params, *inputs, free=free)
    # By kernel, in execution order: the first kernel of the same scan, and the number of scans
    # around it. Kernels of one scan are listed turn by turn.
    scans: dict[Path, tuple[Path, int]] = {}

    def run(probes: dict[str, Any]) -> tuple[Scalar, dict[str, Any]]:
        def visit(call: KernelCall, collected: Any) -> tuple[Any, Any]:
            if call.path in collected:
                return call.output, collected[call.path]
            # Inside a scan only the kernels of the same turn are collected.
            before = [scan for path, scan in scans.items() if path in collected][-1:]
            own = (call.path, len(call.turns))
            same = call.turns and before and before[0][1] == own[1]
            scans.setdefault(call.path, before[0] if same else own)
            sample_axis = _sample_axis(call)
            rows = jnp.moveaxis(call.output, sample_axis, 0)
            units = math.prod(rows.shape[rows.ndim - len(call.unit_axes) :])
            values = rows.reshape(len(rows), -1, units)
            if probes:
                values = values + probes[str(call.path)][call.turns]
            return jnp.moveaxis(values.reshape(rows.shape), 0, sample_axis), values

        output, layers = run_layers(
            apply, params, inputs, layout, visit, bias="included", sample_axes=True, free=free
        )
        objective = _random_function(output) if loss is None else loss(output)
        return objective, {str(path): values for path, (values, _) in layers.items()}

    # The gradient with respect to zeros that are added to the pre-activations is theirs.
    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(run, {})[1])
    gradients, layers = jax.grad(run, has_aux=True)(zeros)
    statistics: Any = _statistics if loss is None else _with_gradient
    signal: dict[str, Scalar] = {}
    for (_, depth), group in groupby(scans, scans.__getitem__):
        function = statistics
        for _ in range(depth):
            function = jax.vmap(function)
        stacks = {str(path): function(layers[str(path)], gradients[str(path)]) for path in group}
        for turn in np.ndindex(next(iter(stacks.values()))["cosine"].shape):
            for path, stack in stacks.items():
                prefix = "/".join([path, *map(str, turn)])
                signal |= {f"{prefix}/{name}": values[turn] for name, values in stack.items()}
    return signal


def _sample_axis(call: KernelCall) -> int:
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


def _with_gradient(values: Values, gradient: Values) -> dict[str, Scalar]:
    largest, scaled = _scaled(gradient)
    return _statistics(values, gradient) | {
        "gradient_variance": batch_moments(gradient, 0).variance.mean(),
        "gradient_norm": largest * jnp.sqrt(jnp.square(scaled).sum((1, 2)).mean()),
    }


def _scaled(values: Values) -> tuple[Scalar, Values]:
    """Returns the largest size, and the values over it, whose squares do not vanish or overflow."""
    wide = promote(values)
    largest = jnp.abs(wide).max()
    return largest, quotient(wide, largest)


def describe_propagation(
    apply: Apply,
    params: PyTree,
    *inputs: Any,
    loss: Loss | None = None,
    layout: Layout | None = None,
    free: Sequence[str] = (),
) -> str:
    """Table of `propagation` for a terminal, with a last line that names what is off and a remedy.

    Call it with the initial parameters, before a training. The last line is "Nothing is off.", or
    begins with "Off:" and lists, for the hidden layers (all but the last),

    - pre-activations whose size grows or shrinks 10 times from the first to the last;
    - residual branches over which pre-activations grow 2 times, or gradients 3 times on the way
      back (with a loss);
    - rows that become alike: a mean cosine above 0.93 in the second half of the layers;
    - if there is nothing of these: gradients that change 10 times (with a loss), and a layer of
      which more than half of the units are dormant.

    Growth is that of the line through the logarithms of the sizes: the root mean square of the
    pre-activations, and ``gradient_norm``. The limits lie between what was measured on networks
    that train and on networks that do not; a trained network may exceed them.

    Args:
        apply: as in `propagation`.
        params: as in `propagation`, not traced.
        *inputs: as in `propagation`: some 64 rows of the training data.
        loss: as in `propagation`.
        layout: as in `propagation`.
        free: as in `propagation`.

    Returns:
        Lines of text: a table of the layers in execution order, and the last line.

    Raises:
        ValueError: as `propagation`.

    Call it outside of jit, pmap and shard_map; of sharded arrays it measures all rows. If they are
    split along explicit axes, call it inside ``jax.set_mesh``.

    Example:
        >>> params = [{"kernel": jnp.full((1, 1), 30.0)} for _ in range(3)]
        >>> def apply(params, x):
        ...     for layer in params:
        ...         x = x @ layer["kernel"]
        ...     return x
        >>> print(describe_propagation(apply, params, jnp.array([[-1.0], [1.0]])))
        layer     variance  squared mean  cosine  dormant  effective rank  kurtosis
        0/kernel  900       0             -1      0        1               1
        1/kernel  8.1e+05   0             -1      0        1               1
        2/kernel  7.29e+08  0             -1      0        1               1
        Off: pre-activations grow 30 times per layer: variance_preserving_init.

    Source: ours.
    """
    signal = propagation(apply, params, *inputs, loss=loss, layout=layout, free=free)
    layers: Layers = {}
    for key, value in signal.items():
        name, _, quantity = key.rpartition("/")
        layers.setdefault(name, {})[quantity] = float(value)
    leaves = {path: x for path, x in named_entries(effective(params)) if not is_absent(x)}
    zeros = [path for path, x in leaves.items() if not np.any(x)]
    ends = [layers[name] for name in _of(_branch_ends(apply, params, inputs), layers)]
    findings = _findings(layers, ends, is_cut=bool(_of(zeros, layers)))
    header = [name.replace("_", " ") for name in next(iter(layers.values()))]
    rows = [[name, *(f"{x:.3g}" for x in row.values())] for name, row in layers.items()]
    verdict = f"Off: {'; '.join(findings)}." if findings else "Nothing is off."
    return "\n".join([*aligned([["layer", *header], *rows]), verdict])


def _branch_ends(apply: Apply, params: PyTree, inputs: tuple[Any, ...]) -> list[Path]:
    """Returns the last kernels of residual branches; none if they cannot be read off."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            factors = residual_factors(apply, params, *inputs)
    except ValueError:
        return []
    return [path for path, factor in named_entries(factors) if factor != 1.0]


def _of(paths: Iterable[Path], layers: Layers) -> list[str]:
    """Returns the names of the layers that have one of these kernels, alone or stacked."""
    starts = tuple(f"{path}/" for path in paths)
    return [name for name in layers if f"{name}/".startswith(starts)]


def _findings(layers: Layers, ends: list[dict[str, float]], is_cut: bool) -> list[str]:
    """Returns in words what is off: causes, or else what may follow from them.

    Args:
        layers: the layers, the last of which only has to be finite.
        ends: the last layers of residual branches.
        is_cut: True if kernels of zeros cut layers off from the output, which is no fault.
    """
    for name, row in layers.items():
        if not np.isfinite([*row.values()]).all():
            return [f"{name} is not finite: look for NaN in the inputs, or take smaller weights"]
    names = [*layers][:-1] or [*layers]
    rows = [layers[name] for name in names]
    forward, backward = _change(rows, _size), _change(rows, _gradient)
    blocks_forward, blocks_backward = _change(ends, _size), _change(ends, _gradient)
    cosines = [row["cosine"] for row in rows]
    findings = []
    if blocks_forward > BRANCHES_FORWARD or blocks_backward < 1 / BRANCHES_BACKWARD:
        sizes = (_in_words(x, ends) for x in (blocks_forward, 1 / blocks_backward))
        text = "pre-activations {} per block, gradients {} on the way back: residual_factors"
        findings.append(text.format(*sizes))
    elif not 1 / CHANGE < forward < CHANGE:
        size = _in_words(forward, rows)
        findings.append(f"pre-activations {size} per layer: variance_preserving_init")
    if np.mean(cosines[len(rows) // 2 :]) > COSINE:
        first = next(i for i, cosine in enumerate(cosines) if cosine > COSINE)
        remedies = "linearly_constrain or shaped" if first else "center the inputs"
        findings.append(f"rows become alike from {names[first]} on: {remedies}")
    if findings:
        return findings
    if not 1 / CHANGE < backward < CHANGE:
        size = _in_words(1 / backward, rows)
        findings.append(f"gradients {size} per layer on the way back: shaped")
    shares = [row["dormant"] * (row["dormant"] < 1 or not is_cut) for row in rows]
    share, name = max(zip(shares, names, strict=True))
    if share > SHARE:
        findings.append(f"{share:.0%} of the units of {name} are dormant: data_dependent_init")
    return findings


def _size(row: dict[str, float]) -> float:
    return math.sqrt(row["variance"] + row["squared_mean"])


def _gradient(row: dict[str, float]) -> float:
    return row.get("gradient_norm", 1.0)


def _change(rows: list[dict[str, float]], size: Callable[[dict[str, float]], float]) -> float:
    """Returns the factor from the first size to the last, of the line through the logarithms."""
    logarithms = [math.log(size(row)) for row in rows if size(row) > 0]
    steps = len(logarithms) - 1
    slope = float(np.polyfit(range(steps + 1), logarithms, 1)[0]) if steps > 0 else 0.0
    return math.exp(slope * steps)


def _in_words(change: float, rows: list[dict[str, float]]) -> str:
    factor = change ** (1 / (len(rows) - 1))
    if abs(factor - 1) < 0.005:
        return "keep their size"
    return f"{'grow' if factor > 1 else 'shrink'} {factor:.3g} times"
