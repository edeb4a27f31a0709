"""Q and C maps of activations: second moments and correlations after one layer, as functions.

For a layer of many units with weights of variance 1 / fan-in and an activation f, the mean square
of the pre-activations goes through the Q map, and the cosine of two inputs through the C map.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64

from jaxnorm._quadrature import (
    Activation,
    Moment,
    derivative,
    float64_on_host,
    gaussian_rule,
    plain,
)

Nodes = Float64[np.ndarray, "... nodes"]

#: The largest size of the inputs.
LIMIT = 10.0

#: The places per unit between which a function is searched for jumps, how often the interval
#: between two of them is halved, and the part of the largest value that counts as a jump.
PLACES, HALVINGS, JUMP = 64, 37, 1e-5


@float64_on_host()
def q_map(activation: Activation, q: Any = 1.0) -> Moment:
    """Mean square after an activation, of inputs of the mean square q: Q(q) = E f(sqrt(q) Z)^2.

    Args:
        activation: an elementwise function f of JAX operations with scalar parameters.
        q: mean squares, a positive number or an array of them.

    Returns:
        Q(q), a float or a float64 array of the shape of ``q``, with errors below 1e-9 for
        activations that are smooth but for a kink or a jump at 0, and for kinks elsewhere below
        1e-4.

    Raises:
        ValueError: for an activation with a parameter per channel or a traced one.

    Computed on the host in float64; under jit, pmap and shard_map while tracing, as a constant.

    Example:
        >>> import jax
        >>> round(q_map(jax.nn.relu, 2.0), 6)
        1.0

    Source: Martens et al. 2021 (arXiv 2110.01765), section 4.1.
    """
    nodes, weights = gaussian_rule()
    values = values_at(activation, np.sqrt(np.asarray(q, np.float64)[..., None]) * nodes)
    return plain((values**2 * weights).sum(-1))


def c_map(activation: Activation, c: Any) -> Moment:
    """Cosine after an activation, of two inputs with the cosine c: C(c) = E f(X) f(Y) / E f(X)^2.

    X and Y are standard normal with the correlation c.

    Args:
        activation: an elementwise function f of JAX operations with scalar parameters; of inputs of
            the mean square q pass ``lambda x: f(q**0.5 * x)``.
        c: cosines, a number from -1 to 1 or an array of them.

    Returns:
        C(c), a float or a float64 array of the shape of ``c``, with errors as `q_map`.

    Raises:
        ValueError: for a cosine outside of [-1, 1], and for an activation with a parameter per
            channel or a traced one.

    Computed on the host in float64, in about 0.1 s per cosine; under jit, pmap and shard_map while
    tracing, as a constant.

    Example:
        >>> import jax
        >>> round(c_map(jax.nn.relu, 0.0), 6)
        0.31831

    Source: Martens et al. 2021 (arXiv 2110.01765), section 4.2.
    """
    return _c_derivative(activation, c, 0)


def c_slope(activation: Activation, c: Any = 1.0) -> Moment:
    """Slope C'(c) of the C map: E f'(X) f'(Y) / E f(X)^2.

    C'(1)^L is the factor by which L layers spread two similar inputs.

    Arguments, result, errors and sharding are those of `c_map`.

    Raises:
        ValueError: as `c_map`, and for an activation that jumps: its slope at c = 1 is infinite.

    Example:
        >>> import jax
        >>> round(c_slope(jax.nn.relu), 6)
        1.0

    Source: Martens et al. 2021, section 4.2.
    """
    return _c_derivative(activation, c, 1)


def values_at(activation: Activation, x: Nodes) -> Nodes:
    """Returns f(x) in float64; called inside the context of the host's float64."""
    column = x[..., None]
    program = jax.jit(activation).lower(jax.ShapeDtypeStruct(column.shape, jnp.float64)).compile()
    values = np.asarray(program(column), np.float64)
    if values.shape != column.shape or not np.isfinite(values).all():
        raise ValueError(
            f"the activation {activation!r} gives values of the shape {values.shape} for inputs of "
            f"the shape {column.shape}, or values that are not finite between -{LIMIT:g} and "
            f"{LIMIT:g}; expected one finite value per input, and no parameter per channel."
        )
    return np.asarray(values[..., 0])


@float64_on_host()
def _c_derivative(activation: Activation, c: Any, order: int) -> Moment:
    c = np.asarray(c, np.float64)
    if (np.abs(c) > 1).any():
        raise ValueError(f"c is {c}; expected cosines from -1 to 1.")
    nodes, weights = gaussian_rule()
    mean_square = (values_at(activation, nodes) ** 2 * weights).sum()
    if order:
        check_continuous(derivative(activation, order - 1))
    function = derivative(activation, order)
    products = [_mean_product(function, float(each)) for each in c.ravel()]
    return plain(np.reshape(products, c.shape) / mean_square)


def _mean_product(function: Activation, c: float) -> float:
    """E f(X) f(Y) = E g(U) g(+-U), g(u) = E f(a u + b V), for X = a U + b V, Y = +-a U + b W."""
    a, b = math.sqrt(abs(c)), math.sqrt(1 - abs(c))
    outer, weights = gaussian_rule()
    inner, shares = gaussian_rule(-a * outer / max(b, 1e-30))
    smoothed = (values_at(function, a * outer[:, None] + b * inner) * shares).sum(-1)
    # The nodes are symmetric about 0.
    return float((smoothed * (smoothed if c >= 0 else smoothed[::-1]) * weights).sum())


def check_continuous(function: Activation) -> None:
    """Raises ValueError for a function that jumps, and with it for an activation's kinks.

    Every interval between two places is halved, and the half with the larger change kept, until it
    is a rounding error wide: a change that is left is a jump.
    """
    ends = np.arange(-LIMIT * PLACES, LIMIT * PLACES + 1) / PLACES
    low, high = ends[:-1], ends[1:]
    program = jax.jit(function).lower(jax.ShapeDtypeStruct(low.shape, jnp.float64)).compile()
    below, above = np.asarray(program(low)), np.asarray(program(high))
    largest = np.abs(below).max()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        values = np.asarray(program(middle))
        is_left = np.abs(values - below) >= np.abs(above - values)
        low, below = np.where(is_left, low, middle), np.where(is_left, below, values)
        high, above = np.where(is_left, middle, high), np.where(is_left, values, above)
    jumps = np.abs(above - below) > JUMP * largest
    if jumps.any():
        raise ValueError(
            f"the activation or its slope jumps at {low[jumps][0]:.6g}, as the slope of relu does "
            "at 0, so that this derivative of the C map is infinite at c = 1; expected a smoother "
            "activation. For a rectifier pass jax.nn.leaky_relu to "
            'jaxnorm.shaping.shaped(..., method="tat").'
        )
