"""Expectations under the normal density: SciPy's adaptive quadrature, and nodes inside a trace."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64
from scipy.integrate import quad_vec

from jaxnorm._numerics import promote
from jaxnorm.activations._evaluate import Activation, slope, traced_columns

#: Values of one or more functions at the nodes: ``(nodes,) -> (nodes, *functions)``.
Integrand = Callable[[Float64[np.ndarray, " nodes"]], Float64[np.ndarray, "nodes ..."]]

#: Up to here the square of the fastest function that has moments is finite in float64.
LIMIT = 38.0
WIDTH = 0.5
LEFT = np.arange(-LIMIT, LIMIT - WIDTH, WIDTH)
#: The panels are moved by so many widths: a kink at a round number is far from each halving.
SHIFTS = (1 / 7, 1 / 3, 2 / 5)
#: The error, and what may be left of it where halving did not help, relative to E |f(Z)|.
TOLERANCE, UNRESOLVED = 1e-12, 1e-11
#: What the outermost panels may hold, relative to E |f(Z)|.
BEYOND = 5e-11
#: What is smaller is not divided by: it may be the tail of a spike between the first nodes.
NOTHING = 1e-100
#: So many intervals are halved at most: each kink takes some 20, each jump some 45.
HALVINGS = 300

_WANTED = "wanted a function whose square has a finite mean under N(0, 1)"
_DIVERGES = (
    f"the Gaussian moments of this activation do not converge; {_WANTED}, and which bends and "
    "jumps at a few places only: leave out what rounds its values, as astype(jnp.float32) does."
)

#: Panels of width 1/64 from -8 to 8: 0, where most kinks are, is the end of two.
PANELS = 1024

LIMIT = 8.0

Column = Float[Array, "nodes 1"]


def gaussian_expectation(integrand: Integrand) -> Float64[np.ndarray, "..."]:
    """E f(Z), Z ~ N(0, 1), to about 1e-12 of E |f(Z)|.

    The panels of [-38, 38] are integrated as one vector-valued function of the place in a panel,
    which is halved wherever it bends or jumps. A kink may hide between the end of a part and the
    first node in it: the result is the median of three, whose panels are moved.

    Args:
        integrand: f, at a whole array of nodes at once; it may have values of any shape a node.

    Returns:
        The expectation, of the shape of one value.

    Raises:
        ValueError: for values that are not finite, and for an integral that does not converge: at
            a pole, because f grows as the density falls, or for too many kinks and jumps.
    """
    three = [_with_panels(integrand, LEFT + WIDTH * shift) for shift in SHIFTS]
    return np.asarray(np.median(three, axis=0))


def _with_panels(
    integrand: Integrand, left: Float64[np.ndarray, " panels"]
) -> Float64[np.ndarray, "..."]:
    """The expectation, from the left ends of panels."""

    def panels(place: float) -> Float64[np.ndarray, "panels ..."]:
        return _weighted(integrand, left + WIDTH * place)

    sizes = np.mean([np.abs(panels(place)) for place in (0.1, 0.3, 0.5, 0.7, 0.9)], axis=0)
    scale = np.where(sizes.sum(0) > NOTHING, sizes.sum(0), 1.0)
    if (sizes[[0, -1]] > BEYOND * scale).any():
        raise ValueError(_DIVERGES)
    total, error = quad_vec(
        lambda place: panels(place).sum(0) / scale,
        *(0.0, 1.0),
        epsabs=TOLERANCE,
        epsrel=TOLERANCE,
        norm="max",
        limit=HALVINGS,
    )
    if not error < UNRESOLVED * max(1.0, np.abs(total).max()):
        raise ValueError(_DIVERGES)
    return np.asarray(total * scale)


def _weighted(
    integrand: Integrand, nodes: Float64[np.ndarray, " panels"]
) -> Float64[np.ndarray, "panels ..."]:
    """The integrand times the density and the width of a panel."""
    with np.errstate(over="ignore"):  # which is told below
        values = integrand(nodes)
    if not np.isfinite(values).all():
        where = nodes[~np.isfinite(values.reshape(len(nodes), -1)).all(1)][0]
        raise ValueError(
            f"the activation or its square is not finite at {where:.6g} in float64; {_WANTED}."
        )
    # The root of the density, twice: far out the density itself is too small for float64.
    root = np.exp(-(nodes**2) / 4).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(root * values * root * (WIDTH / np.sqrt(2 * np.pi)))


def traced_moments(
    activation: Activation, parameters: list[Any]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """The mean and standard deviation, differentiable in the parameters."""
    nodes, weights = _rule(parameters)
    values = traced_columns(activation, nodes)
    mean = (values * weights).sum(0)
    variance = (jnp.square(values - mean[None]) * weights).sum(0)
    return _squeezed(mean), _squeezed(jnp.sqrt(variance))


def traced_mean_squared_slope(activation: Activation, parameters: list[Any]) -> Float[Array, "..."]:
    """E f'(Z)^2, differentiable in the parameters."""
    nodes, weights = _rule(parameters)
    squares = jnp.square(traced_columns(slope(activation), nodes))
    return _squeezed((squares * weights).sum(0))


def _rule(parameters: list[Any]) -> tuple[Column, Column]:
    """Gauss-Legendre nodes and weights of E f(Z), in the widest type of the parameters."""
    places, shares = np.polynomial.legendre.leggauss(4)
    width = 2 * LIMIT / PANELS
    middles = -LIMIT + width * (np.arange(PANELS) + 0.5)
    nodes = (middles[:, None] + places * width / 2).ravel()
    weights = np.tile(shares, PANELS) * np.exp(-(nodes**2) / 2) * width / 2 / math.sqrt(2 * math.pi)
    floating = [p for p in parameters if jnp.issubdtype(p.dtype, jnp.floating)]
    dtype = promote(*floating).dtype if floating else jnp.float32
    return jnp.asarray(nodes[:, None], dtype), jnp.asarray(weights[:, None], dtype)


def _squeezed(columns: Float[Array, " channels"]) -> Float[Array, "..."]:
    """A scalar for an activation without a parameter per channel."""
    return columns[0] if columns.shape[0] == 1 else columns
