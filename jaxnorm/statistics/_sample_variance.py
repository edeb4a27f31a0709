"""The unbiased variance of a sample."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._numerics import promote
from jaxnorm._trees._axes import fan_in, negative_axes


def sample_variance(x: Float[Array, "..."], axes: int | Iterable[int]) -> Float[Array, "..."]:
    """The unbiased sample variance: the sum of (x - mean)^2 over ``axes``, divided by n - 1.

    In two passes, deviations first: exact for the small samples it is meant for.

    Args:
        x: activations of any floating type.
        axes: the axes that one sample runs over.

    Returns:
        One value a unit, in float32 or wider. A single value has no unbiased variance; the result
        is then 0, and so is its gradient. An infinite or NaN value makes its own unit NaN.

    Raises:
        ValueError: for axes that the array does not have.
        TypeError: for activations that are not real floating-point numbers.

    Under pmap and shard_map the sample is the device's own; under jit it is the whole array,
    however it is sharded.

    Example:
        >>> sample_variance(jnp.array([[1.0, 5.0], [3.0, 5.0]]), 0).tolist()
        [2.0, 0.0]

    Source: Littwin and Wolf 2018, section 2.
    """
    sample_axes = negative_axes(axes, x.ndim, "the array of activations")
    wide = promote(x)
    deviation = wide - jax.lax.stop_gradient(wide.mean(sample_axes, keepdims=True))
    # The mean of the deviations is the rounding error of the mean: of size with a large offset.
    error = deviation.mean(sample_axes, keepdims=True)
    return jnp.square(deviation - error).sum(sample_axes) / max(fan_in(wide, sample_axes) - 1, 1)
