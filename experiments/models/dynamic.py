"""Elementwise functions with learned parameters, in place of layer normalization."""

import jax.numpy as jnp
from flax import nnx
from jax.scipy.special import erf
from jaxtyping import Array, Float

#: The initial value of alpha in both papers. The shift starts at 0.
ALPHA = 0.5


class DynamicTanh(nnx.Module):
    """gamma tanh(alpha x) + beta, with one alpha, and gamma and beta per unit.

    Args:
        width: the number of units.
        rngs: unused; other layers need it.

    Source: Zhu, Chen, He, LeCun and Liu 2025, "Transformers without normalization".
    """

    def __init__(self, width: int, rngs: nnx.Rngs | None = None):
        self.alpha = nnx.Param(jnp.full((1,), ALPHA))
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        lead = (None,) * (x.ndim - 1)
        squashed = jnp.tanh(self.alpha[...][lead] * x)
        return squashed * self.scale[...][lead] + self.bias[...][lead]


class DynamicErf(nnx.Module):
    """gamma erf(alpha x + s) + beta, with one alpha and s, and gamma and beta per unit.

    Args:
        width: the number of units.
        rngs: unused; other layers need it.

    Source: Chen, Lu, Zhu, Sun and Liu 2025, "Stronger normalization-free transformers".
    """

    def __init__(self, width: int, rngs: nnx.Rngs | None = None):
        self.alpha, self.shift = nnx.Param(jnp.float32(ALPHA)), nnx.Param(jnp.float32(0))
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        lead = (None,) * (x.ndim - 1)
        squashed = erf(self.alpha[...] * x + self.shift[...])
        return squashed * self.scale[...][lead] + self.bias[...][lead]
