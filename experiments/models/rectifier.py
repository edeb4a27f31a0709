"""A rectifier whose output stays standardized while its bias is learned."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm.normprop import rectified_moments

Values = Float[Array, "..."]


class StandardizedRectifier(nnx.Module):
    """gain (relu(x + bias) - mean) / std, with the moments of relu(N(bias, 1)) for each unit.

    For standard normal inputs, which a unit-norm kernel makes of uncorrelated standard ones, the
    output has mean 0 and standard deviation ``gain`` exactly, for any bias; the paper's constants
    hold for bias 0. The scale follows the rectifier, because before it it would cancel.

    Args:
        width: the number of units.
        rngs: unused; other layers need it.
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
