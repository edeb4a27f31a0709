"""The activation that keeps a standard normal input at zero mean and unit variance."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._numerics import promote
from jaxnorm.activations._evaluate import Activation
from jaxnorm.activations._gaussian_moments import Moment, check_spread, gaussian_moments


def standardized(
    activation: Activation, *, centered: bool = True
) -> Callable[[Any], Float[Array, "..."]]:
    """The activation x -> (f(x) - mean) / std, with the moments of f under N(0, 1).

    Its value at a standard normal input has mean 0 and variance 1, so the next layer's
    pre-activations with unit-norm weights are normalized again: normalization propagates without
    statistics of the data.

    Args:
        activation: an elementwise function, as in `gaussian_moments`.
        centered: whether the mean is taken away. Without it the activation is f(x) / sqrt(E f^2),
            whose mean square is 1: magnitude-preserving, as Karras et al.'s silu(x) / 0.596.

    Returns:
        A function of an array of any shape and floating type, which keeps both. The moments are
        computed here, once: make it outside the training step. An activation with a learned
        parameter is standardized inside the step, where the parameter is traced, so that the
        moments follow it and are differentiated.

    Raises:
        ValueError: for an activation that is constant or has no finite moments.

    Elementwise: it means the same under jit, pmap and shard_map and keeps shardings.

    Example:
        >>> import jax
        >>> f = standardized(jax.nn.relu)
        >>> f(jnp.array([-1.0, 0.0, 2.0])).round(3).tolist()
        [-0.6830..., -0.6830..., 2.74...]

    Source: Arpit et al. 2016, Eq. 6 and section 4.3. As in the paper, pooling is not
    renormalized. Without centering Karras et al. 2024, Eq. 81.
    """
    mean, std = gaussian_moments(activation)
    check_spread(std, activation)
    if not centered:
        mean, std = 0.0, (mean**2 + std**2) ** 0.5

    def apply(x: Float[Array, "..."]) -> Float[Array, "..."]:
        y = activation(x)
        wide = promote(y)
        return ((wide - _like(mean, wide)) / _like(std, wide)).astype(y.dtype)

    return apply


def _like(moment: Moment, wide: Float[Array, "..."]) -> Float[Array, "..."]:
    """The moment in the type of an array, with axes for it to meet the last one."""
    value = jnp.asarray(moment, wide.dtype)
    return value.reshape((1,) * (wide.ndim - value.ndim) + value.shape) if value.ndim else value
