"""Table of all nodes, with float64 oracles. A new reparametrization is a new row."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Reparametrization,
    Scaled,
    SpectrallyNormalized,
    WeightNormalized,
    WeightStandardized,
)
from tests.oracles import Array
from tests.reparam import oracles

Axes = tuple[int, ...]

#: float32 against float64, values and gradients of order one, sums over at most 54 weights: some
#: thirty roundings of 2^-24, times 3 for units whose norm is below one.
FLOAT32 = {"rtol": 5e-6, "atol": 5e-6}
#: float64 against float64, on the same sums: the same with 2^-53.
FLOAT64 = {"rtol": 1e-13, "atol": 1e-13}


def storage_tolerance(dtype: Any) -> dict[str, float]:
    """Tolerance of a result in ``dtype`` that was computed in float32 or wider.

    Nested nodes round three times (between the nodes, and at the end of value and gradient), by
    half an epsilon each, on values up to four; the other nodes round once.
    """
    if dtype == jnp.float64:
        return FLOAT64
    eps = float(jnp.finfo(dtype).eps)
    return FLOAT32 if dtype == jnp.float32 else {"rtol": 2 * eps, "atol": 2 * eps}


class Row(NamedTuple):
    """Kind of node. Oracles get ``v``, one row per unit, and ``s``, one number per unit or None.

    Attributes:
        name: the name of its tests.
        make: ``from_kernel``.
        value: ``(v, s) -> kernel``, one row per unit.
        pullback: ``(v, s, c) -> (gradient of v, gradient of s or None)`` of sum(c * kernel).
        start: the documented value of ``effective(from_kernel(w))``, one row per unit.
        scales: True if every multiple of a kernel can be represented.
        has_mean: True if v are weights; False for coordinates of zero-sum units.
    """

    name: str
    make: Callable[[Any, Any], Reparametrization]
    value: Callable[[Array, Any], Array]
    pullback: Callable[[Array, Any, Array], tuple[Array, Any]]
    start: Callable[[Array], Array]
    scales: bool = True
    has_mean: bool = True


def _scaled_lcw(kernel: Any, axes: Any) -> Scaled:
    return Scaled.from_kernel(LinearlyConstrained.from_kernel(kernel, axes), axes)


def _normalized(name: str, kind: Any, centers: bool = False, standardizes: bool = False) -> Row:
    options = centers, standardizes
    value, pullback = oracles.normalized(*options), oracles.normalized_pullback(*options)
    start = oracles.without_mean if centers else np.asarray
    return Row(name, kind.from_kernel, value, pullback, start)


TABLE = (
    Row(
        "lcw",
        LinearlyConstrained.from_kernel,
        oracles.constrained,
        oracles.constrained_pullback,
        oracles.without_mean,
        has_mean=False,
    ),
    _normalized("wn", WeightNormalized),
    _normalized("cwn", CenteredWeightNormalized, True),
    _normalized("ws", WeightStandardized, True, True),
    Row(
        "sn",
        SpectrallyNormalized.from_kernel,
        oracles.spectral,
        oracles.spectral_pullback,
        lambda v: oracles.spectral(v, None),
        scales=False,
    ),
    Row("scaled", Scaled.from_kernel, oracles.scaled, oracles.scaled_pullback, np.asarray),
    Row(
        "scaled_lcw",
        _scaled_lcw,
        oracles.scaled_constrained,
        oracles.scaled_constrained_pullback,
        oracles.without_mean,
        has_mean=False,
    ),
)

#: Shapes of rank 2 to 5 and their fan-in axes.
SHAPES: dict[str, tuple[tuple[int, ...], Axes]] = {
    "dense": ((8, 6), (-2,)),
    "dense_out_in": ((5, 7), (-1,)),
    "fan_in_2": ((2, 3), (-2,)),
    "one_unit": ((4, 3), (-2, -1)),
    "attention_query": ((6, 2, 3), (-3,)),
    "attention_out": ((2, 3, 5), (-3, -2)),
    "apart": ((3, 4, 2), (-3, -1)),
    "conv": ((3, 3, 2, 4), (-4, -3, -2)),
    "conv_oihw": ((4, 2, 3, 3), (-3, -2, -1)),
    "conv_3d": ((3, 3, 3, 2, 3), (-5, -4, -3, -2)),
}


def normal(seed: int, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def random_node(row: Row, case: str, dtype: Any = jnp.float32) -> Any:
    """Node with random leaves."""
    shape, axes = SHAPES[case]
    kernel = jax.ShapeDtypeStruct(shape, dtype)
    leaves, structure = jax.tree.flatten(jax.eval_shape(lambda k: row.make(k, axes), kernel))
    leaves = [normal(seed, leaf.shape, leaf.dtype) for seed, leaf in enumerate(leaves, 1)]
    return jax.tree.unflatten(structure, leaves)
