"""What the mean does not say of a small sample: its unbiased variance, and its kurtosis."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._numerics import nonzero, promote, rounding_floor
from jaxnorm._trees._axes import fan_in, negative_axes

#: The kurtosis of a Gaussian, which a constant unit gets.
GAUSSIAN = 3.0


def kurtosis(x: Float[Array, "..."], axes: int | Iterable[int]) -> Float[Array, "..."]:
    """The fourth moment about the mean over the squared variance, m4 / m2^2: 3 for a Gaussian.

    It is 1 for two values of equal probability, the least there is; the *excess* kurtosis rho of
    the batch normalization paper is this minus 3.

    Args:
        x: activations of any floating type.
        axes: the axes that the sample runs over.

    Returns:
        One value a unit, in float32 or wider, from biased moments. The kurtosis of a constant unit
        (to rounding) is not defined; the result is then 3, a Gaussian's, with gradient 0, so that a
        metric or a strength made of it stays finite. An infinite or NaN value makes its own unit
        NaN.

    Raises:
        ValueError: for axes that the array does not have.
        TypeError: for activations that are not real floating-point numbers.

    Under pmap and shard_map the sample is the device's own (kurtoses cannot be averaged); under jit
    it is the whole array, however it is sharded, at five all-reduces.

    Example:
        >>> kurtosis(jnp.array([[1.0, 5.0], [-1.0, 5.0]]), 0).tolist()
        [1.0, 3.0]

    Source: Littwin and Wolf 2018, section 2.
    """
    sample_axes = negative_axes(axes, x.ndim, "the array of activations")
    wide = promote(x)
    mean = wide.mean(sample_axes, keepdims=True)
    deviation = wide - mean
    deviation = deviation - deviation.mean(sample_axes, keepdims=True)
    variance = jnp.square(deviation).mean(sample_axes, keepdims=True)
    constant = variance <= rounding_floor(mean)
    # Divided before it is squared twice: where the mean is large, the deviations are small.
    squares = jnp.square(deviation) / nonzero(variance, constant)
    fourth = jnp.square(squares).mean(sample_axes)
    return jnp.where(constant.squeeze(sample_axes), GAUSSIAN, fourth)


def sample_variance(x: Float[Array, "..."], axes: int | Iterable[int]) -> Float[Array, "..."]:
    """The unbiased sample variance: the sum of (x - mean)^2 over ``axes``, divided by n - 1.

    The function makes two passes, deviations first: it is exact for small samples.

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
