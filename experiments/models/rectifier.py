"""A rectifier whose output is standardized whatever its bias has become."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm import rectified_moments

Values = Float[Array, "..."]


class StandardizedRectifier(nnx.Module):
    """gain (relu(x + bias) - mean) / std, with the moments of relu(N(bias, 1)) for each unit.

    Of inputs that are standard normal, as a unit-norm kernel makes them of uncorrelated standard
    ones, the output has mean 0 and standard deviation ``gain``: exactly, while biases are learned,
    which the constants of the paper (those of bias 0) are not. The scale comes after, since before
    the rectifier it would cancel.

    Args:
        width: the number of units.
        rngs: accepted as other layers do, and unused.
    """

    def __init__(self, width: int, rngs: nnx.Rngs | None = None):
        self.bias = nnx.Param(jnp.zeros(width))
        self.gain = nnx.Param(jnp.ones(width))

    def __call__(self, x: Values, **options: Any) -> Values:
        bias, gain = (p[...].astype(x.dtype) for p in (self.bias, self.gain))
        mean, std = rectified_moments(jnp.ones((), x.dtype), bias)
        shape = (1,) * (x.ndim - 1) + (-1,)
        bias, mean, factor = (each.reshape(shape) for each in (bias, mean, gain / std))
        return factor * (jax.nn.relu(x + bias) - mean)
