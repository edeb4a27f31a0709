"""Pooling of images."""

import jax
from jaxtyping import Array, Float

Images = Float[Array, "rows height width channels"]


def average_pool(x: Images) -> Images:
    """The means of 2 x 2 windows; an odd last row or column is left out."""
    window = (1, 2, 2, 1)
    # flax's avg_pool divides by an integer array, which strict dtype promotion does not allow.
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, window, "VALID") / 4.0


def max_pool(x: Images) -> Images:
    """The largest of 2 x 2 windows; sides of one pixel are left as they are."""
    window = (1, min(2, x.shape[1]), min(2, x.shape[2]), 1)
    return jax.lax.reduce_window(x, -float("inf"), jax.lax.max, window, window, "VALID")
