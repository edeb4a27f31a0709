"""Normal numbers that are equal in every run."""

from typing import Any

import jax
import numpy as np


def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers in float64, for NumPy."""
    return np.random.default_rng(seed).normal(size=shape)


def draw(seed: int, *shape: int) -> jax.Array:
    """Normal numbers in float32, for JAX."""
    return float32(normal(seed, *shape))


def float32(numbers: Any) -> jax.Array:
    """Array of JAX with these numbers: unlike `jnp.asarray`, compiles nothing for a new shape."""
    return jax.device_put(np.asarray(numbers, np.float32))


def ones(*shape: int) -> jax.Array:
    """Array of ones: unlike `jnp.ones`, compiles nothing for a new shape."""
    return float32(np.ones(shape))
