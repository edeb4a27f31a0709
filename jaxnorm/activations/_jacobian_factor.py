"""The factor by which a layer with a standardized activation scales gradients."""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from jaxnorm.activations._evaluate import (
    Activation,
    is_jax_function,
    on_host,
    slope,
    traced_parameters,
)
from jaxnorm.activations._gaussian_moments import Moment, gaussian_moments
from jaxnorm.activations._quadrature import gaussian_expectation
from jaxnorm.activations._standardized import check_spread
from jaxnorm.activations._traced import traced_mean_squared_slope


def jacobian_factor(activation: Activation) -> Moment:
    """The typical singular value of a layer's Jacobian: sqrt(E f'(Z)^2) / std f(Z), Z ~ N(0, 1).

    The paper divides the scale of each layer by it (1.21 for ReLU), which makes the Jacobian's
    squared singular values 1 on average. It does so at the cost of the normalization itself: with a
    scale of 1 nine random layers keep a standard deviation of 1.00 to 1.02, with 1/1.21 it falls
    from 0.83 to 0.29.

    Args:
        activation: an elementwise function, as in `gaussian_moments`.

    Returns:
        A Python float, right to 1e-10; an array for parameters per channel; a differentiable array
        for a traced parameter. Its E f'^2 is right to 1e-5 where the slope changes over 0.03 or
        more, and to 4e-3 of the jump of f'^2 where the slope jumps elsewhere than at 0; its
        derivative lacks what moving such a jump would add.

    Raises:
        ValueError: for an activation that is constant or has no finite moments.

    Computed while tracing, as `gaussian_moments`: nothing runs on the devices. The derivative
    counts almost everywhere: a jump of the activation adds nothing to it.

    Example:
        >>> import jax
        >>> round(jacobian_factor(jax.nn.relu), 4)
        1.2112

    Source: Arpit et al. 2016, section 3.4; 1.47 there is its square for ReLU.
    """
    mean, std = gaussian_moments(activation)
    del mean
    check_spread(std, activation)
    if parameters := traced_parameters(activation):
        return jnp.sqrt(traced_mean_squared_slope(activation, parameters)) / std
    squared = (_kept if is_jax_function(activation) else _mean_squared_slope)(activation)
    result = np.sqrt(squared) / std
    return float(result) if np.ndim(result) == 0 else result


@functools.lru_cache
def _kept(activation: Activation) -> np.ndarray:
    return _mean_squared_slope(activation)


def _mean_squared_slope(activation: Activation) -> np.ndarray:
    derivative = slope(activation)

    def with_values(x: Float64[np.ndarray, " nodes"]) -> Float64[np.ndarray, "nodes ... 2"]:
        """The values too: where they rise steeply the slope is a spike, which nodes may miss."""
        pair = np.square(on_host(derivative, x)), on_host(activation, x)
        return np.stack(np.broadcast_arrays(*pair), -1)

    return np.asarray(gaussian_expectation(with_values)[..., 0])
