"""The standardization layer: batch normalization without parameters, of activations."""

from typing import Any

from jaxtyping import Array, Float

from jaxnorm.nnx._batch_norm import BatchNorm


class Standardization(BatchNorm):
    """(a - mu_B) / sqrt(var_B + eps), for after an activation: it has nothing to learn.

    Placed there it makes the inputs of the next layer zero-mean, and so removes the activation
    shift that batch normalization removes from the pre-activations.

    Example:
        >>> import jax.numpy as jnp
        >>> Standardization(1, epsilon=0.0)(jnp.array([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]

    Source: Gulcehre and Bengio 2016; Kutsuna 2019, section 5.
    """

    def __init__(self, num_features: int, **options: Any):
        """A layer with the options of `BatchNorm`, without scale and bias."""
        super().__init__(num_features, use_scale=False, use_bias=False, **options)

    def __call__(
        self, x: Float[Array, "..."], use_running_average: bool | None = None, *, mask: Any = None
    ) -> Float[Array, "..."]:
        """Standardizes ``x``, (batch, ..., features), in its own type."""
        return super().__call__(x, use_running_average, mask=mask)
