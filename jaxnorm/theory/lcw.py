"""Activation shift and the propagation of variances: Kutsuna 2019, sections 2 to 4.

As in the paper's z = W a, the last axis of the weights is the fan-in (a Flax kernel is the
transpose).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm import _checks
from jaxnorm._activations import gaussian_moments, jacobian_factor
from jaxnorm._quadrature import Activation, Moment

__all__ = [
    "activation_shift",
    "forward_moments",
    "gradient_gain",
    "variance_gain",
]

Weight = Float[Array, "*units inputs"]
Units = Float[Array, "*units"]
Scalar = float | Float[Array, ""]


def activation_shift(weight: Weight, mean_activation: Scalar | Float[Array, " inputs"]) -> Units:
    """The mean of each unit's pre-activation: E w'a = w'E a.

    For activations of mean mu it is ||w|| ||mu|| cos(w, mu); if all means are gamma, it is
    gamma sqrt(m) ||w|| cos(w, 1), which is zero for zero-sum weights.

    Args:
        weight: the weights of one unit, or units along the leading axes.
        mean_activation: E a: one number gamma for all inputs, or a vector mu.

    Returns:
        One value per unit.

    Linear; the same under jit, pmap and shard_map.

    Example:
        >>> activation_shift(jnp.array([[1.0, 2.0], [1.0, -1.0]]), -0.5).tolist()
        [-1.5, 0.0]

    Source: Kutsuna 2019, Propositions 1 to 3. Erratum: Proposition 1 prints |gamma|, which has the
    wrong sign for a negative mean.
    """
    mean = jnp.broadcast_to(jnp.asarray(mean_activation, weight.dtype), weight.shape)
    return (weight * mean).sum(-1)


def forward_moments(weight: Weight, mean: Scalar, variance: Scalar) -> tuple[Units, Units]:
    """The mean and variance of each unit's pre-activation: (gamma 1'w, sigma^2 ||w||^2).

    Args:
        weight: units along the leading axes.
        mean: gamma, the mean of every input.
        variance: sigma^2, the variance of every input; inputs are uncorrelated.

    Returns:
        The pair (mean, variance), one value per unit; the mean of zero-sum weights is zero.

    Differentiable; the same under jit, pmap and shard_map.

    Example:
        >>> mean, variance = forward_moments(jnp.array([[1.0, 2.0], [1.0, -1.0]]), 0.5, 3.0)
        >>> mean.tolist(), variance.tolist()
        ([1.5, 0.0], [15.0, 6.0])

    Source: Kutsuna 2019, Propositions 3 and 4, without the restriction to zero-sum weights.
    """
    return activation_shift(weight, mean), variance * jnp.square(weight).sum(-1)


def variance_gain(activation: Activation, stddev: Scalar = 1.0) -> tuple[Moment, Moment]:
    """Factors of an activation on variances: (Var f(z) / Var z, E f'(z)^2), z ~ N(0, stddev^2).

    The first is for the forward pass, the second for the variance of a gradient in the backward
    pass. For ReLU they are (1 - 1/pi) / 2 = 0.3408 and 1/2 at any scale.

    Args:
        activation: an elementwise function, as in `jaxnorm.normprop.gaussian_moments`.
        stddev: standard deviation of the pre-activation; positive.

    Returns:
        The pair (forward, backward) as Python floats, accurate to 1e-10; differentiable float32
        arrays if ``stddev`` or a parameter of the activation is traced.

    Raises:
        ValueError: if the standard deviation is not positive, if the activation is constant, and
            as `jaxnorm.normprop.gaussian_moments`.

    Computed while tracing unless ``stddev`` is traced: nothing runs on the devices.

    Example:
        >>> import jax
        >>> forward, backward = variance_gain(jax.nn.sigmoid)
        >>> round(forward, 5), round(backward, 5)
        (0.04338, 0.04484)

    Source: Kutsuna 2019, Proposition 6 and section 4.2. Erratum: the pairs printed there for the
    sigmoid at 0.5, 1 and 2, (0.236, 0.237), (0.208, 0.211) and (0.157, 0.170), are ratios of
    standard deviations; those of variances are their squares, (0.0558, 0.0560), (0.0434, 0.0448)
    and (0.0246, 0.0290).
    """
    _checks.check_number(stddev, _checks.POSITIVE, "stddev", "1.0 for example")
    scaled = lambda x: activation(stddev * x)  # noqa: E731
    _, std = gaussian_moments(scaled)
    forward = std / stddev
    backward = jacobian_factor(scaled) * forward
    return forward * forward, backward * backward


def gradient_gain(activation: Activation, constrained: bool = True) -> Moment:
    """The factor of the gradient's variance through one layer of a wide network at initialization.

    The random weights are rescaled so that pre-activations have unit variance, pooled over samples
    and units. With zero-sum weights this is ||w||^2 Var f(z) = 1, and the factor is
    E f'(z)^2 / Var f(z), the square of `jaxnorm.normprop.jacobian_factor`. With plain weights
    the means of the units count as well: ||w||^2 E f(z)^2 = 1, and the factor E f'(z)^2 / E f(z)^2
    is so small that gradients vanish.

    Args:
        activation: an elementwise function, as in `jaxnorm.normprop.gaussian_moments`.
        constrained: True if the weights of each unit sum to zero.

    Returns:
        A Python float; an array if a parameter of the activation is traced.

    Raises:
        ValueError: as `variance_gain`.

    Computed while tracing, as `variance_gain`.

    Example:
        >>> import jax
        >>> [round(gradient_gain(jax.nn.sigmoid, constrained), 4) for constrained in (True, False)]
        [1.0336, 0.1528]

    Source: ours; a number for the argument of Kutsuna 2019, section 4.3.
    """
    factor = jacobian_factor(activation)
    if constrained:
        return factor * factor
    mean, std = gaussian_moments(activation)
    return factor * factor / (1 + (mean / std) * (mean / std))
