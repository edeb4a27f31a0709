"""Axis arithmetic: which axes of an array are fan-in, written so that it survives vmap and scan."""

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxnorm._trees._node import Axes


def negative_axes(
    axes: SupportsIndex | Iterable[SupportsIndex], ndim: int, name: str = "array"
) -> Axes:
    """``axes`` of an array of rank ``ndim`` as sorted negative numbers.

    Negative axes stay right when ``jax.vmap`` or a scan adds leading axes. Raises ValueError for
    axes that are repeated or out of range, TypeError for what is no integer; ``name`` is the
    array's name in the message.
    """
    given = tuple(map(operator.index, axes if isinstance(axes, Iterable) else (axes,)))
    result = tuple(sorted(axis - ndim if axis >= 0 else axis for axis in given))
    outside = [axis for axis in given if not -ndim <= axis < ndim]
    if outside or len(set(result)) < len(result) or not result:
        raise ValueError(
            f"{name} has {ndim} axes, and its fan-in axes were given as {given}: wanted at least "
            f"one, each once, and each from {-ndim} to -1 (or 0 to {ndim - 1})."
        )
    return result


def fan_in(array: Any, axes: Axes) -> int:
    """The number of weights of one unit."""
    return math.prod(array.shape[axis] for axis in axes)


def unit_shape(array: Any, axes: Axes) -> tuple[int, ...]:
    """The shape of one value per unit: the array's shape without its fan-in axes."""
    kept = [size for axis, size in enumerate(array.shape) if axis - array.ndim not in axes]
    return tuple(kept)


def per_unit(values: Float[Array, "..."], axes: Axes) -> Float[Array, "..."]:
    """One value per unit, with axes of size 1 put where the fan-in axes are."""
    return jnp.expand_dims(values, axes)


def first_place(array: Float[Array, "..."], axes: Axes) -> Bool[Array, "..."]:
    """Whether a place of the fan-in is the first; of size 1 along the other axes."""
    sizes = [size if axis - array.ndim in axes else 1 for axis, size in enumerate(array.shape)]
    index = jnp.zeros(sizes, jnp.int32)
    for axis in axes:
        index += jax.lax.broadcasted_iota(jnp.int32, sizes, axis % array.ndim)
    return index == 0
