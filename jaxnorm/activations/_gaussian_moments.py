"""The mean and standard deviation of an activation of a standard normal variable."""

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
    is_jax_function,
    on_host,
    traced_parameters,
)
from jaxnorm.activations._quadrature import gaussian_expectation
from jaxnorm.activations._traced import traced_moments

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
        TypeError: for an activation with complex values.
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
    return _kept(activation) if is_jax_function(activation) else _host_moments(activation)


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


@functools.lru_cache
def _kept(activation: Activation) -> tuple[Moment, Moment]:
    return _host_moments(activation)


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
