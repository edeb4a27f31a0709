"""Pooling of images."""

from typing import Any

import jax

from experiments.models.sizes import Images


def average_pool(x: Images) -> Images:
    """Averages 2 x 2 windows; an odd last row or column is left out."""
    window = (1, 2, 2, 1)
    # flax's avg_pool divides by an integer array, which strict dtype promotion does not allow.
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, window, "VALID") / 4.0


def max_pool(x: Images) -> Images:
    """Takes the maximum of 2 x 2 windows; sides of one pixel are not pooled."""
    window = (1, min(2, x.shape[1]), min(2, x.shape[2]), 1)
    return jax.lax.reduce_window(x, -float("inf"), jax.lax.max, window, window, "VALID")


def max_pool_3x3(x: Images) -> Images:
    """Takes the maximum of 3 x 3 windows at every second position, with padding of one."""
    return _reduce_3x3(x, -float("inf"), jax.lax.max)


def average_pool_3x3(x: Images) -> Images:
    """Averages 3 x 3 windows at every second position, with zero padding of one."""
    return _reduce_3x3(x, 0.0, jax.lax.add) / 9.0


def _reduce_3x3(x: Images, start: float, reduction: Any) -> Images:
    padding = ((0, 0), (1, 1), (1, 1), (0, 0))
    return jax.lax.reduce_window(x, start, reduction, (1, 3, 3, 1), (1, 2, 2, 1), padding)
