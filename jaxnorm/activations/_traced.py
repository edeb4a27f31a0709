"""Gaussian expectations inside a trace, for activations with a learned parameter."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._unit import widen
from jaxnorm.activations._evaluate import Activation, slope, traced

#: Panels of width 1/32 from -8 to 8, so that 0, where most kinks are, is between two of them.
PANELS = 512
LIMIT = 8.0
NODES = 4


def traced_moments(
    activation: Activation, parameters: list[Any]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """The mean and standard deviation, differentiable in the parameters."""
    nodes, weights = _rule(parameters)
    values = traced(activation, nodes)
    mean = _expectation(values, weights)
    return mean, jnp.sqrt(_expectation(jnp.square(values - mean[None]), weights))


def traced_mean_squared_slope(activation: Activation, parameters: list[Any]) -> Float[Array, "..."]:
    """E f'(Z)^2, differentiable in the parameters."""
    nodes, weights = _rule(parameters)
    return _expectation(jnp.square(traced(slope(activation), nodes)), weights)


def _rule(parameters: list[Any]) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"]]:
    """Nodes and weights of E f(Z), in float32 or in the widest type of the parameters."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    half = LIMIT / PANELS
    centres = np.linspace(-LIMIT, LIMIT, PANELS, endpoint=False) + half
    nodes = (centres[:, None] + half * x).ravel()
    weights = np.tile(half * w, PANELS) * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    floating = [p for p in parameters if jnp.issubdtype(p.dtype, jnp.floating)]
    dtype = widen(*floating).dtype if floating else jnp.float32
    return jnp.asarray(nodes, dtype), jnp.asarray(weights / weights.sum(), dtype)


def _expectation(
    values: Float[Array, "nodes ..."], weights: Float[Array, " nodes"]
) -> Float[Array, "..."]:
    """A sum, not a dot product, which some devices compute in half precision."""
    return (values * weights.reshape(-1, *[1] * (values.ndim - 1))).sum(0)
