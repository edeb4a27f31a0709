"""A deep sigmoid network, and the pre-activations of its layers in float64 NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.draws import float32

WIDTH = 64


def sigmoid(x: Any) -> Any:
    """Sigmoid of floats, through the ``tanh`` of JAX or NumPy."""
    tanh = np.tanh if isinstance(x, np.ndarray) else jnp.tanh
    return 0.5 * tanh(0.5 * x) + 0.5


def layers(depth: int) -> dict[str, Any]:
    """Kernels named so that their alphabetical order, 0 1 10 11 ... 2, is not that of the model."""
    random = np.random.default_rng(0)
    kernels = [random.normal(size=(WIDTH, WIDTH)) for _ in range(depth)]
    biases = [0.1 * random.normal(size=WIDTH) for _ in range(depth)]
    return {
        f"layer_{i}": {"kernel": jnp.asarray(w, jnp.float32), "bias": jnp.asarray(b, jnp.float32)}
        for i, (w, b) in enumerate(zip(kernels, biases, strict=True))
    }


def mlp(params: Any, x: Any) -> Any:
    """A sigmoid MLP with biases, with a sigmoid after the last layer too."""
    for number in range(len(params)):
        layer = params[f"layer_{number}"]
        x = sigmoid(x @ layer["kernel"] + layer["bias"][None])
    return x


def preactivations(params: Any, x: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """``(w'x, w'x + b)`` of every layer of `mlp`, in float64 NumPy."""
    result, x = [], np.asarray(x, np.float64)
    for number in range(len(params)):
        layer = params[f"layer_{number}"]
        product = x @ np.asarray(layer["kernel"], np.float64)
        shifted = product + np.asarray(layer["bias"], np.float64)
        result.append((product, shifted))
        x = 1 / (1 + np.exp(-shifted))
    return result


def uniform(*shape: int, seed: int = 1) -> jax.Array:
    return float32(np.random.default_rng(seed).uniform(size=shape))
