"""Dropout that keeps the mean and the variance of standardized SELU activations."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

#: What a dropped unit is set to: the limit of the SELU at minus infinity.
SATURATED = -1.7580993408473766


class AlphaDropout(nnx.Module):
    """a (x or alpha') + b in training, a unit being alpha' with probability ``rate``; else x.

    With q = 1 - rate, a = (q + alpha'^2 q (1 - q))^(-1/2) and b = -a (1 - q) alpha', an input of
    mean 0 and variance 1 has an output of mean 0 and variance 1.

    Args:
        rate: the probability that a unit is dropped.
        rngs: the random streams; its draws come from ``dropout``.

    Source: Klambauer et al. 2017, "Self-normalizing neural networks", section 2.
    """

    def __init__(self, rate: float, *, rngs: nnx.Rngs):
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        if self.dropout.deterministic:
            return x
        kept = 1 - self.dropout.rate
        scale = (kept + SATURATED**2 * kept * (1 - kept)) ** -0.5
        # Ordinary dropout of x - alpha' gives (x - alpha') / q or 0.
        dropped = self.dropout(x - jnp.asarray(SATURATED, x.dtype)) * kept + SATURATED
        return scale * (dropped - (1 - kept) * SATURATED)
