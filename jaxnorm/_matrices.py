"""Kernels as matrices, and the singular value that preserves the size of their inputs."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._axes import fan_in_size
from jaxnorm._node import Axes
from jaxnorm._phases import refuse_phases

Kernel = Float[Array, "..."]

Matrix = Float[Array, "... fan_in units"]


def singular_value(matrix: Matrix, squared_radius: Any) -> Float[Array, ""]:
    """Returns sqrt(c max(1, units / fan-in))."""
    rows, columns = matrix.shape[-2:]
    c = jnp.asarray(squared_radius, matrix.dtype).reshape(())
    return jnp.sqrt(c * max(1.0, columns / rows))


def as_matrices(
    wide: Kernel, axes: Axes, stacked: int
) -> tuple[Matrix, Callable[[Matrix], Kernel]]:
    """Returns kernels as (..., fan-in, units), and the function that restores their shape."""
    refuse_phases(axes, f"the kernel of shape {wide.shape}", "this")
    lead = tuple(range(-wide.ndim, stacked - wide.ndim))
    units = tuple(axis for axis in range(stacked - wide.ndim, 0) if axis not in axes)
    places = range(wide.ndim)
    moved = jnp.moveaxis(wide, (*lead, *axes, *units), places)
    matrices = moved.reshape(*moved.shape[: len(lead)], fan_in_size(wide, axes), -1)

    def restore(matrices: Matrix) -> Kernel:
        return jnp.moveaxis(matrices.reshape(moved.shape), places, (*lead, *axes, *units))

    return matrices, restore
