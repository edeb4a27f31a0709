"""Expectations under N(0, 1): adaptive quadrature on the host, fixed nodes inside a trace."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64

from jaxnorm._numerics import ROUNDING_ERRORS, promote

#: An elementwise function.
Activation = Callable[[Any], Any]
Nodes = Float64[np.ndarray, " nodes"]
Values = Float64[np.ndarray, "nodes ..."]
Integrand = Callable[[Nodes], Values]
Column = Float[Array, "nodes 1"]
#: A float; an array for a parameter per channel; a traced array for a traced parameter.
Moment = float | Float[Array, "..."] | Float64[np.ndarray, " channels"]

#: Ends of the panels above 0. Panels shrink towards 0, where most kinks and steep steps are; are
#: 1/64 wide up to 8, so that an unseen kink costs less than 1e-10; and reach 38, where the square
#: of the fastest function with finite moments is still finite in float64.
ENDS = np.concatenate(
    [[0], 2.0 ** np.arange(-40, -6), np.arange(2, 512) / 64, np.arange(8, 38.5, 0.5)]
)
LEFT = np.concatenate([-ENDS[:0:-1], ENDS[:-1]])
WIDTH = np.concatenate([np.diff(ENDS)[::-1], np.diff(ENDS)])
#: Relative to E |f(Z)|: the error to reach, and the largest one accepted.
TOLERANCE, UNRESOLVED = 1e-12, 1e-11
#: Relative to E |f(Z)|: the largest integral over an outermost panel.
OUTERMOST = 5e-11
#: Smaller values of E |f(Z)| may be the tail of a spike between the nodes: nothing divides by them.
NEGLIGIBLE = 1e-100
#: The number of times an interval may be halved; a kink takes about 12, a jump about 30.
HALVINGS = 200

#: Fixed nodes inside a trace: 4 in each of 512 panels on either side of 0, up to 8.
TRACED_LIMIT, TRACED_PANELS, TRACED_NODES = 8.0, 512, 4

_EXPECTED = "expected a function whose square has a finite mean under N(0, 1)"
_DIVERGES = (
    f"the Gaussian moments of this activation do not converge; {_EXPECTED}, with few kinks and "
    "jumps: remove any rounding of its values, such as astype(jnp.float32)."
)


def moments(activation: Activation) -> tuple[Moment, Moment]:
    """The mean and standard deviation of f(Z); differentiable in traced parameters."""
    if parameters := _traced_parameters(activation):
        nodes, weights = _traced_rule(parameters)
        values = _traced_values(activation, nodes)
        mean = (values * weights).sum(0)
        variance = (jnp.square(values - mean[None]) * weights).sum(0)
        return _squeezed(mean), _squeezed(jnp.sqrt(variance))
    return _host_moments(activation)


def root_mean_square_slope(activation: Activation) -> Moment:
    """sqrt(E f'(Z)^2); differentiable in traced parameters."""
    if parameters := _traced_parameters(activation):
        nodes, weights = _traced_rule(parameters)
        squares = jnp.square(_traced_values(derivative(activation), nodes))
        return jnp.sqrt(_squeezed((squares * weights).sum(0)))
    return plain(np.sqrt(_host_mean_square_slope(activation)))


@functools.cache
def unit_rule(count: int, panels: int = 1) -> tuple[Nodes, Nodes]:
    """Gauss-Legendre nodes and weights of an integral over [0, 1], ``count`` in each panel."""
    x, weights = np.polynomial.legendre.leggauss(count)
    nodes = (np.arange(panels)[:, None] + (x + 1) / 2) / panels
    return nodes.ravel(), np.tile(weights, panels) / (2 * panels)


def gaussian_rule(
    kink: Any = 0.0, limit: float = 10.0, panels: int = 32, count: int = 16
) -> tuple[Float64[np.ndarray, "... nodes"], Float64[np.ndarray, "... nodes"]]:
    """Fixed nodes and weights of E g(Z), Z ~ N(0, 1), for each place of a kink or jump of g.

    Args:
        kink: the places, of any shape.
        limit: the end of the Gaussian's range.
        panels: the panels on either side of a kink.
        count: the nodes of each panel.
    """
    kink = np.clip(np.asarray(kink, np.float64), -limit, limit)[..., None]
    below, above = kink + limit, limit - kink
    places, shares = unit_rule(count, panels)
    nodes = np.concatenate([below * places - limit, above * places + kink], -1)
    return nodes, _normal_density(nodes) * np.concatenate([below * shares, above * shares], -1)


def _normal_density(x: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Density of N(0, 1)."""
    return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))


def plain(value: Any) -> Moment:
    """A Python float, which takes the type of the arrays it meets, for a NumPy scalar."""
    return float(value) if isinstance(value, (np.ndarray, np.generic)) and not value.ndim else value


@contextlib.contextmanager
def float64_on_host() -> Iterator[None]:
    """Context that computes at once in float64 on the CPU, also in a trace or inside shard_map."""
    with (
        jax.ensure_compile_time_eval(),
        jax.enable_x64(True),
        _implicit_promotion(),
        jax.default_device(_host()),
    ):
        yield


def _host() -> Any:
    """This process's CPU; None, which means the default device, if JAX was started without one."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


@contextlib.contextmanager
def _implicit_promotion() -> Iterator[None]:
    """Context in which float32 parameters meet float64 nodes, and channels meet a column."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@float64_on_host()
def _host_moments(activation: Activation) -> tuple[Moment, Moment]:
    """The moments around an approximate mean: E f^2 - (E f)^2 would lose digits to a large mean."""
    f = _compiled(activation)
    center = _weighted(f, 0.5).sum(0)

    def powers(x: Nodes) -> Values:
        deviation = f(x) - center
        return np.stack([deviation, np.square(deviation)], -1)

    first, second = np.moveaxis(_expectation(powers), -1, 0)
    mean, std = center + first, np.sqrt(np.maximum(second - np.square(first), 0))
    constant = std <= 8 * ROUNDING_ERRORS * np.finfo(np.float64).eps * np.abs(mean)
    return plain(mean), plain(np.where(constant, 0, std))


@float64_on_host()
def _host_mean_square_slope(activation: Activation) -> Float64[np.ndarray, "..."]:
    f, slope = _compiled(activation), _compiled(derivative(activation))

    def with_values(x: Nodes) -> Values:
        """Values too: if f rises steeply the slope is a spike, which nodes may miss."""
        return np.stack(np.broadcast_arrays(np.square(slope(x)), f(x)), -1)

    return np.asarray(_expectation(with_values)[..., 0])


def _expectation(integrand: Integrand) -> Float64[np.ndarray, "..."]:
    """E f(Z), Z ~ N(0, 1), to about 1e-12 of E |f(Z)|.

    All panels are integrated together, as one vector-valued function of the place in a panel, by
    one adaptive quadrature: it halves [0, 1] around the places of kinks and jumps. A kink or jump
    between the end of an interval and its outermost node, at most 1.7e-5 apart, stays unseen.

    Args:
        integrand: f, called with all nodes at one place; values may have any shape per node.

    Returns:
        The expectation, of the shape of one value.

    Raises:
        ValueError: for values that are not finite, and if the integral does not converge: at a
            pole, if f grows as fast as the density falls, or for too many kinks and jumps.
    """
    from scipy.integrate import quad_vec  # SciPy takes as long to import as JAX

    sizes = np.abs(_weighted(integrand, 0.5))
    scale = np.where(sizes.sum(0) > NEGLIGIBLE, sizes.sum(0), 1.0)
    if (sizes[[0, -1]] > OUTERMOST * scale).any():
        raise ValueError(_DIVERGES)
    total, error = quad_vec(
        lambda place: _weighted(integrand, place).sum(0) / scale,
        *(0.0, 1.0),
        epsabs=TOLERANCE,
        epsrel=TOLERANCE,
        norm="max",
        limit=HALVINGS,
    )
    if not error < UNRESOLVED * max(1.0, np.abs(total).max()):
        raise ValueError(_DIVERGES)
    return np.asarray(total * scale)


def _weighted(integrand: Integrand, place: float) -> Values:
    """The integrand at one place in each panel, times the density and the panel's width."""
    nodes = LEFT + WIDTH * place
    with np.errstate(over="ignore"):  # An infinite value raises below.
        values = integrand(nodes)
    if not np.isfinite(values).all():
        where = nodes[~np.isfinite(values.reshape(len(nodes), -1)).all(1)][0]
        raise ValueError(
            f"the activation or its square is not finite at {where:.6g} in float64; {_EXPECTED}."
        )
    columns = (-1, *[1] * (values.ndim - 1))
    # The root of the density, twice: far from 0 the density itself underflows in float64.
    root = np.exp(-(nodes**2) / 4).reshape(columns)
    return np.asarray(root * values * root * WIDTH.reshape(columns) / math.sqrt(2 * math.pi))


def _compiled(activation: Activation) -> Integrand:
    """The activation compiled for the host's nodes; called inside `float64_on_host`.

    Its values have an axis of channels if the activation has a parameter per channel.
    """
    column = jax.ShapeDtypeStruct((len(LEFT), 1), jnp.float64)
    program = jax.jit(activation).lower(column).compile()

    def values(x: Nodes) -> Values:
        columns = np.asarray(program(x[:, None]), np.float64)
        return columns[:, 0] if columns.shape[1] == 1 else columns

    return values


def derivative(activation: Activation, order: int = 1) -> Activation:
    """Returns a derivative of an elementwise function: that along an array of ones."""
    if order == 0:
        return activation
    return derivative(lambda x: jax.jvp(activation, (x,), (jnp.ones_like(x),))[1], order - 1)


def _traced_parameters(activation: Activation) -> list[Any]:
    """The traced arrays that the activation closes over, as a learned slope inside jit or grad."""
    with _implicit_promotion():
        closed = jax.make_jaxpr(activation)(jax.ShapeDtypeStruct((1, 1), jnp.float32))
    return [const for const in closed.consts if isinstance(const, jax.core.Tracer)]


def _traced_rule(parameters: list[Any]) -> tuple[Column, Column]:
    """Gauss-Legendre nodes and weights of E f(Z), in the widest type of the parameters."""
    rule = gaussian_rule(limit=TRACED_LIMIT, panels=TRACED_PANELS, count=TRACED_NODES)
    floating = [p for p in parameters if jnp.issubdtype(p.dtype, jnp.floating)]
    dtype = promote(*floating).dtype if floating else jnp.float32
    nodes, weights = (jnp.asarray(constants[:, None], dtype) for constants in rule)
    return nodes, weights


def _traced_values(activation: Activation, nodes: Column) -> Float[Array, "nodes channels"]:
    """f(x) as part of the surrounding trace, with one column per channel."""
    with _implicit_promotion():
        values = activation(nodes)
    return jnp.broadcast_to(values, (nodes.shape[0], values.shape[1])).astype(nodes.dtype)


def _squeezed(columns: Float[Array, " channels"]) -> Float[Array, "..."]:
    """A scalar for an activation without a parameter per channel."""
    return columns[0] if columns.shape[0] == 1 else columns
