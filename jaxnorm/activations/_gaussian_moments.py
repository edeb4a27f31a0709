"""The moments of an activation of a standard normal variable, and of its slope."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from jaxnorm._numerics import ROUNDING_ERRORS, promote
from jaxnorm.activations._evaluate import (
    Activation,
    float64_on_host,
    kept,
    on_host,
    slope,
    traced_parameters,
)
from jaxnorm.activations._quadrature import (
    gaussian_expectation,
    traced_mean_squared_slope,
    traced_moments,
)

#: A float; an array for a parameter per channel; a traced array for a traced parameter.
Moment = float | Float[Array, "..."] | Float64[np.ndarray, " channels"]

#: The slope of ``jax.nn.leaky_relu`` where none is given.
LEAKY_SLOPE = 0.01


def gaussian_moments(activation: Activation) -> tuple[Moment, Moment]:
    """The mean E f(Z) and the standard deviation of f(Z), Z ~ N(0, 1).

    Closed form for ``jax.nn.relu`` and ``jax.nn.leaky_relu`` (slope a: mean (1 - a) / sqrt(2 pi),
    variance ((1 + a^2) - (1 - a)^2 / pi) / 2); for any other activation SciPy's adaptive
    quadrature, which closes in on kinks and jumps.

    Args:
        activation: an elementwise function of JAX operations. Parameters that it closes over may be
            scalars or one a channel (the last axis); those of ``jax.nn.leaky_relu`` are bound with
            ``functools.partial``.

    Returns:
        The pair (mean, standard deviation) as Python floats, right to 1e-10 whatever JAX's default
        precision; an array of float64 for parameters per channel. If a parameter is traced, as the
        slope of a learned PReLU inside jit or grad: float32 arrays that can be differentiated, by
        Gauss-Legendre nodes in panels of 1/64 on [-8, 8], right to 2e-6 for activations that grow
        at most as exp does. Where a parameter moves a kink away from 0 the derivatives are right to
        2e-3; where the activation jumps, its moments are right to 1e-2 of the jump, and the
        derivative lacks what moving the jump would add: a comparison has no derivative.

    Raises:
        ValueError: for an activation without finite moments (one with a pole as tan, or as large as
            exp(x^2 / 4)), one that comes too close to that for float64 (exp(0.24 x^2) does not), or
            one that rounds its values inside: it has a jump at each.

    Inside jit, pmap, vmap and shard_map the moments are computed while tracing and are constants of
    the program: no device computes them, and there is nothing to communicate. The moments of JAX's
    own functions are kept; those of your functions, which may change, are computed at every call
    (0.2 to 2 s: see `standardized`). A spike narrower than 0.01 on an activation that is smooth
    around it may lie between the quadrature's nodes, and is then not seen.

    Example:
        >>> mean, std = gaussian_moments(jax.nn.relu)
        >>> round(mean, 7), round(std, 7)
        (0.3989423, 0.5838194)
        >>> mean, std = gaussian_moments(lambda x: jnp.clip(x, -1, 1))
        >>> abs(mean) < 1e-10, round(std, 7)
        (True, 0.7183722)

    Source: Arpit et al. 2016, Remark 1 (ReLU) and section 4.6 (PReLU); quadrature for any other
    activation is ours.
    """
    a = leaky_slope(activation)
    if a is not None:
        return _leaky_moments(a)
    if parameters := traced_parameters(activation):
        return traced_moments(activation, parameters)
    return _host_moments(activation)


def leaky_slope(activation: Activation) -> Any:
    """The slope below zero of ReLU and leaky ReLU: a float or an array; None for any other."""
    if activation is jax.nn.relu:
        return 0.0
    if activation is jax.nn.leaky_relu:
        return LEAKY_SLOPE
    if isinstance(activation, functools.partial) and activation.func is jax.nn.leaky_relu:
        return _wide_number(activation.keywords.get("negative_slope", LEAKY_SLOPE))
    return None


def _wide_number(slope: Any) -> Any:
    """The slope in float64 if it is known, else in float32 or wider."""
    if isinstance(slope, jax.core.Tracer):
        return promote(slope)
    return _number(np.asarray(slope, np.float64))


def _leaky_moments(a: Any) -> tuple[Moment, Moment]:
    variance = ((1 + a * a) - (1 - a) * (1 - a) / math.pi) / 2
    root = jnp.sqrt if isinstance(a, jax.core.Tracer) else np.sqrt
    std = root(variance)
    return (1 - a) / math.sqrt(2 * math.pi), std if np.ndim(a) else _number(std)


@kept
@float64_on_host()
def _host_moments(activation: Activation) -> tuple[Moment, Moment]:
    mean = gaussian_expectation(lambda x: on_host(activation, x))

    def squares(x: Float64[np.ndarray, " nodes"]) -> Float64[np.ndarray, "nodes ... 2"]:
        """The values too: a steep step shows in them, and in its square only while it is taken."""
        values = on_host(activation, x)
        return np.stack([np.square(values - mean), values], -1)

    # In a second pass: the difference of E f^2 and (E f)^2 would lose digits to a large mean.
    std = np.sqrt(gaussian_expectation(squares)[..., 0])
    constant = std <= 8 * ROUNDING_ERRORS * np.finfo(np.float64).eps * np.abs(mean)
    return _number(mean), _number(np.where(constant, 0, std))


def _number(value: Any) -> Any:
    """A Python float for a NumPy scalar, which then takes the type of what it meets."""
    is_scalar = isinstance(value, (np.ndarray, np.floating)) and value.ndim == 0
    return float(value) if is_scalar else value


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
    _, std = gaussian_moments(activation)
    check_spread(std, activation)
    if parameters := traced_parameters(activation):
        return jnp.sqrt(traced_mean_squared_slope(activation, parameters)) / std
    factor: Moment = _number(np.sqrt(_mean_squared_slope(activation)) / std)
    return factor


@kept
@float64_on_host()
def _mean_squared_slope(activation: Activation) -> np.ndarray:
    derivative = slope(activation)

    def with_values(x: Float64[np.ndarray, " nodes"]) -> Float64[np.ndarray, "nodes ... 2"]:
        """The values too: where they rise steeply the slope is a spike, which nodes may miss."""
        pair = np.square(on_host(derivative, x)), on_host(activation, x)
        return np.stack(np.broadcast_arrays(*pair), -1)

    return np.asarray(gaussian_expectation(with_values)[..., 0])


def check_spread(std: Moment, activation: Activation) -> None:
    """Raises ValueError for an activation that is constant where the normal distribution is."""
    if not isinstance(std, jax.core.Tracer) and not np.all(np.asarray(std) > 0):
        raise ValueError(
            f"the activation {activation!r} is constant under N(0, 1): its standard deviation is "
            f"{std}, and nothing can be divided by it."
        )
