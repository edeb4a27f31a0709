"""Arithmetic of axes: fan-in axes as negative numbers, and values per unit."""

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._node import Axes
from jaxnorm._phases import PhasedAxes


def negative_axes(
    axes: SupportsIndex | Iterable[SupportsIndex], ndim: int, name: str = "array"
) -> Axes:
    """Returns ``axes`` of an array of rank ``ndim`` as sorted negative numbers, with their phases.

    Negative axes stay right when ``jax.vmap`` or a scan adds leading axes. Raises ValueError for
    axes that are repeated or out of range, TypeError for axes that are no integers; ``name`` is
    the array's name in the message.
    """
    if isinstance(axes, PhasedAxes):
        return PhasedAxes(negative_axes(tuple(axes), ndim, name), axes.strides)
    indices = tuple(map(operator.index, axes if isinstance(axes, Iterable) else (axes,)))
    result = tuple(sorted(axis - ndim if axis >= 0 else axis for axis in indices))
    outside = [axis for axis in indices if not -ndim <= axis < ndim]
    if outside or len(set(result)) < len(result) or not result:
        raise ValueError(
            f"{name} has {ndim} axes, and its fan-in axes were given as {indices}: wanted at least "
            f"one, each once, and each from {-ndim} to -1 (or 0 to {ndim - 1})."
        )
    return result


def fan_in_size(kernel: Any, axes: Axes) -> int:
    """Returns the number of weights along the fan-in axes: those of all phases of a channel."""
    return math.prod(kernel.shape[axis] for axis in axes)


def unit_shape(kernel: Any, axes: Axes) -> tuple[int, ...]:
    """Returns the shape of one value per channel: the kernel's shape without its fan-in axes."""
    return tuple(
        size for axis, size in enumerate(kernel.shape) if axis - len(kernel.shape) not in axes
    )


def refuse_leading_units(kernel: Any, axes: Axes, name: str, advice: str) -> None:
    """Raises ValueError for units on both sides of the fan-in: the leading may count kernels."""
    units = [axis for axis in range(-len(kernel.shape), 0) if axis not in axes]
    if units and units[0] < min(axes) and units[-1] > max(axes):
        raise ValueError(
            f"{name} of shape {tuple(kernel.shape)} has units on both sides of its fan-in axes "
            f"{axes}: the leading ones may count kernels of a stack. {advice}"
        )


def check_per_unit(value: Any, shape: tuple[int, ...], name: str) -> None:
    """Raises ValueError for an array that is not one value per unit and would be broadcast."""
    if jnp.shape(value) not in ((), tuple(shape)):
        raise ValueError(
            f"{name} has the shape {jnp.shape(value)}; wanted {tuple(shape)}, one value per unit "
            "of its layer, or a number."
        )


def per_unit(values: Float[Array, "..."], axes: Axes) -> Float[Array, "..."]:
    """Inserts axes of size 1 at the fan-in axes into an array of one value per channel."""
    return jnp.expand_dims(values, axes)
