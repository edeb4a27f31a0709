"""Transitional names."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxnorm._axes import fan_in_size as fan_in_size
from jaxnorm._axes import negative_axes as negative_axes
from jaxnorm._axes import per_unit as per_unit
from jaxnorm._axes import unit_shape as unit_shape
from jaxnorm._node import Axes

fan_in = fan_in_size


def first_place(array: Float[Array, "..."], axes: Axes) -> Bool[Array, "..."]:
    """Whether a place of the fan-in is the first; of size 1 along the other axes."""
    sizes = [size if axis - array.ndim in axes else 1 for axis, size in enumerate(array.shape)]
    index = jnp.zeros(sizes, jnp.int32)
    for axis in axes:
        index += jax.lax.broadcasted_iota(jnp.int32, sizes, axis % array.ndim)
    return index == 0
