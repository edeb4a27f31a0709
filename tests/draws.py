"""Normal numbers that are equal in every run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers in float64, for NumPy."""
    return np.random.default_rng(seed).normal(size=shape)


def draw(seed: int, *shape: int) -> jax.Array:
    """Normal numbers in float32, for JAX."""
    return jnp.asarray(normal(seed, *shape), jnp.float32)
