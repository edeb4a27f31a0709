"""Dynamic Tanh: what one would use in the place of layer normalization.

Zhu, Chen, He, LeCun and Liu 2025, "Transformers without normalization".
"""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

#: The initial value of alpha; the paper's.
ALPHA = 0.5


class DynamicTanh(nnx.Module):
    """gamma tanh(alpha x) + beta, with one alpha and a gamma and beta for each unit.

    Args:
        width: the number of units.
    """

    def __init__(self, width: int):
        self.alpha = nnx.Param(jnp.full((1,), ALPHA))
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        lead = (None,) * (x.ndim - 1)
        squashed = jnp.tanh(self.alpha[...][lead] * x)
        return squashed * self.scale[...][lead] + self.bias[...][lead]
