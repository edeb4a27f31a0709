"""Gaussian expectations inside a trace, for activations with a learned parameter."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._numerics import promote
from jaxnorm.activations._evaluate import Activation, slope, traced_columns

#: Panels of width 1/64 from -8 to 8: 0, where most kinks are, is the end of two.
PANELS = 1024
LIMIT = 8.0

Column = Float[Array, "nodes 1"]


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
