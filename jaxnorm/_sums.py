"""Sums over a unit's weights, and their transpose, in one pass over a large kernel on the CPU.

A compiler for CPUs writes what is to be summed (the squares, say) before it sums it, and reads a
column sum row by row: two or three passes where memory allows one. Added in `PARTS` interleaved
slices the summands never leave the registers, and an eighth is left for the ordinary sum. Adding
in parts is no less accurate. Elsewhere, and for small kernels, the sum is the ordinary one.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._trees._node import Axes

Weights = Float[Array, "..."]
Units = Float[Array, "..."]

#: Into how many interleaved slices a fan-in axis is cut.
PARTS = 8

#: The same where two sums share a pass, if it divides the axis: half the sums are left in memory.
PARTS_OF_TWO = 16

#: How many slices along an axis stand for all, at least.
SOME = 32

#: Kernels of fewer weights stay in the cache, where passes cost little.
LARGE = 2**14


def parted_axis(wide: Weights, axes: Axes) -> int | None:
    """The fan-in axis that is summed in parts, or None where the ordinary sum is as good."""
    if math.prod(wide.shape) < LARGE or jax.default_backend() != "cpu":
        return None
    even = [n for n in axes if n != -1 and wide.shape[n] % PARTS == 0 and not _is_split(wide, n)]
    return max(even, key=lambda axis: wide.shape[axis], default=None)


def total(wide: Weights, axes: Axes) -> Units:
    """The sum over the fan-in axes, kept as axes of size 1."""
    axis = parted_axis(wide, axes)
    return wide.sum(axes, keepdims=True) if axis is None else _parted_total(wide, axes, axis)


def totals(wide: Weights, axes: Axes) -> tuple[Units, Units]:
    """The sums of the weights and of their squares, in one pass."""
    axis = parted_axis(wide, axes)
    if axis is None:
        return wide.sum(axes, keepdims=True), jnp.square(wide).sum(axes, keepdims=True)
    return _parted_totals(wide, axes, axis)


def largest(wide: Weights) -> Float[Array, ""]:
    """The largest magnitude of all, 0 of none; no gradient passes through."""
    wide = jax.lax.stop_gradient(wide)
    axis = parted_axis(wide, tuple(range(-wide.ndim, 0)))
    if axis is not None:
        first, *others = _slices(jnp.abs(wide), axis)
        wide = jax.lax.optimization_barrier(functools.reduce(jnp.maximum, others, first))
    return jnp.abs(wide).max(initial=0.0)


def to_weights(values: Units, wide: Weights, axes: Axes) -> Weights:
    """One value a unit at each of the unit's weights; its transpose, in gradients, is `total`."""
    axis = parted_axis(wide, axes)
    return values if axis is None else _parted_to_weights(values, wide.shape, axis)


def not_stored(wide: Weights, axes: Axes) -> Weights:
    """The same weights, as what a compiler computes again rather than stores for a second use.

    It stores the sum of two kernels, and computes again what is a kernel less one number a unit.
    """
    if parted_axis(wide, axes) is None:
        return wide
    sizes = [1 if axis - wide.ndim in axes else n for axis, n in enumerate(wide.shape)]
    zero: Units = jax.lax.optimization_barrier(jnp.zeros(sizes, wide.dtype))
    return wide - zero


def some_of(wide: Weights, axis: int) -> Weights:
    """A few slices from all along an axis."""
    return jax.lax.slice_in_dim(wide, 0, None, max(wide.shape[axis] // SOME, 1), axis)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _parted_total(wide: Weights, axes: Axes, axis: int) -> Units:
    first, *others = _slices(wide, axis)
    # The barrier keeps compilers from making one sum of the two again.
    few: Weights = jax.lax.optimization_barrier(sum(others, first))
    return few.sum(axes, keepdims=True)


@_parted_total.defjvp
def _parted_total_jvp(axes: Axes, axis: int, primals: Any, tangents: Any) -> Any:
    """The transpose of the ordinary sum is one broadcast; that of slices, many padded arrays."""
    (wide,), (tangent,) = primals, tangents
    return _parted_total(wide, axes, axis), tangent.sum(axes, keepdims=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _parted_totals(wide: Weights, axes: Axes, axis: int) -> tuple[Units, Units]:
    parts = PARTS if wide.shape[axis] % PARTS_OF_TWO else PARTS_OF_TWO
    view, zero = _in_parts(wide, axis, parts), jnp.zeros((), wide.dtype)
    sums = jax.lax.reduce((view, jnp.square(view)), (zero, zero), _add_pairs, (axis % view.ndim,))
    first, second = jax.lax.optimization_barrier(sums)
    return first.sum(axes, keepdims=True), second.sum(axes, keepdims=True)


@_parted_totals.defjvp
def _parted_totals_jvp(axes: Axes, axis: int, primals: Any, tangents: Any) -> Any:
    """JAX has no derivative of a reduction of pairs."""
    (wide,), (tangent,) = primals, tangents
    slopes = tangent, 2 * wide * tangent
    return _parted_totals(wide, axes, axis), tuple(t.sum(axes, keepdims=True) for t in slopes)


def _add_pairs(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1]


def _slices(wide: Weights, axis: int) -> list[Weights]:
    """Every eighth slice along the axis, from the first, from the second and so on."""
    view = _in_parts(wide, axis, PARTS)
    return [jax.lax.index_in_dim(view, n, axis, keepdims=False) for n in range(PARTS)]


def _in_parts(wide: Weights, axis: int, parts: int) -> Weights:
    """The axis as two, of which the second, now at ``axis``, counts the parts."""
    sizes = wide.shape[:axis], wide.shape[axis + 1 :]
    return wide.reshape(*sizes[0], wide.shape[axis] // parts, parts, *sizes[1])


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _parted_to_weights(values: Units, shape: tuple[int, ...], axis: int) -> Weights:
    return jnp.broadcast_to(values, shape)


@_parted_to_weights.defjvp
def _parted_to_weights_jvp(
    shape: tuple[int, ...], axis: int, primals: Any, tangents: Any
) -> tuple[Weights, Weights]:
    """As copies side by side, whose transpose is the sum in parts."""
    (values,), (tangent,) = primals, tangents
    part = (*shape[:axis], shape[axis] // PARTS, *shape[axis + 1 :])
    copies = [jax.lax.optimization_barrier(jnp.broadcast_to(tangent, part))] * PARTS
    return _parted_to_weights(values, shape, axis), jnp.stack(copies, axis).reshape(shape)


def _is_split(wide: Weights, axis: int) -> bool:
    """Whether the axis is sharded explicitly; reshaping it would need the mesh."""
    return jax.typeof(wide).sharding.spec[axis] is not None
