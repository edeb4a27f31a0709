"""How far the units of one kernel are off the constraint set."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._constraints._unit import Weights, radii, squared_norm
from jaxnorm._trees._axes import free_part
from jaxnorm._trees._node import Axes


def drifts(
    wide: Weights, axes: Axes, squared_radius: Any, zero_sum: bool
) -> tuple[Float[Array, "..."], Float[Array, ""], Float[Array, ""]]:
    """||w||^2 of each unit, the largest |1'w|, and the largest | ||w||^2 - c |.

    ``zero_sum`` weights are coordinates of units that sum to zero, whatever the coordinates do.
    """
    squares = squared_norm(free_part(wide, axes, zero_sum), axes)
    sums = jnp.zeros_like(squares) if zero_sum else wide.sum(axes)
    off = jnp.abs(squares - radii(squared_radius, wide, axes))
    return squares, jnp.abs(sums).max(initial=0.0), off.max(initial=0.0)
