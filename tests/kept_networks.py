"""Rows, parameters and comparisons for tests of kernels that averages keep."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.keeping.networks import drawn

CLASSES = 3


def minibatch(dtype: Any = jnp.float32) -> tuple[jax.Array, jax.Array]:
    """Six images and their labels."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(0.3, 1, (6, 8, 8, 3)), draw.integers(0, CLASSES, 6)
    return jnp.asarray(x, dtype), jnp.asarray(y, jnp.int32)


def parameters(network: Any, x: jax.Array, first: int = 0) -> Any:
    """Random parameters of batch normalization; the first scale of each layer times ``first``."""
    draw = np.random.default_rng(1)
    params = drawn(network, jax.random.key(0), x[:1])
    for leaf in params.values():
        for part in leaf.keys() - {"kernel"}:
            values = draw.normal(part == "scale", 0.3, leaf[part].shape)
            values[0] *= first if part == "scale" else 1
            leaf[part] = jnp.asarray(values, x.dtype)
    return params


def assert_close(made: Any, wanted: Any, tolerance: float) -> None:
    """Compares each leaf on the scale of the largest entry of its tree."""
    size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(wanted))
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance * size), made, wanted
    )
