"""Gaussian expectations inside a trace, for activations with a learned parameter."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._numerics import promote
from jaxnorm.activations._evaluate import Activation, slope, traced_columns
from jaxnorm.activations._kinks import Columns, chosen_panels, kinks

#: Panels of width 1/32 from -8 to 8, moved by a third of one: a kink at 0 or another round number
#: is then inside a panel, where it is looked for.
PANELS = 512
LIMIT = 8.0
NODES = 4
WIDTH = 2 * LIMIT / PANELS
START = -LIMIT + WIDTH / 3

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)


def traced_moments(
    activation: Activation, parameters: list[Any]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """The mean and standard deviation, differentiable in the parameters."""
    nodes, weights = _rule(activation, parameters)
    values = traced_columns(activation, nodes)
    mean = (values * weights).sum(0)
    variance = (jnp.square(values - mean[None]) * weights).sum(0)
    return _squeezed(mean), _squeezed(jnp.sqrt(variance))


def traced_mean_squared_slope(activation: Activation, parameters: list[Any]) -> Float[Array, "..."]:
    """E f'(Z)^2, differentiable in the parameters."""
    nodes, weights = _rule(activation, parameters)
    squares = jnp.square(traced_columns(slope(activation), nodes))
    return _squeezed((squares * weights).sum(0))


def _rule(activation: Activation, parameters: list[Any]) -> tuple[Columns, Columns]:
    """Nodes and weights of E f(Z), in float32 or in the widest type of the parameters.

    A panel with a kink is split at it. The nodes then move with the kink, and with them comes what
    the derivative of an integral over pieces owes to their moving ends.
    """
    floating = [p for p in parameters if jnp.issubdtype(p.dtype, jnp.floating)]
    dtype = promote(*floating).dtype if floating else jnp.float32
    edges = START + WIDTH * np.arange(PANELS + 1)
    chosen, change = chosen_panels(activation, jnp.asarray(edges, dtype))
    left = START + WIDTH * chosen.astype(dtype)
    right = left + WIDTH
    place = kinks(activation, left, right, change)
    whole = _gauss(jnp.asarray(edges[:-1, None], dtype), jnp.asarray(edges[1:, None], dtype))
    others = (chosen[:, None] != jnp.arange(PANELS)[None, :, None]).all(0)
    split = [_gauss(left, place), _gauss(place, right)]
    parts = [(whole[0], jnp.where(others[None], whole[1], 0)), *split]
    columns = chosen.shape[1]
    nodes, weights = (
        jnp.concatenate(
            [jnp.broadcast_to(x, (*x.shape[:2], columns)).reshape(-1, columns) for x in part]
        )
        for part in zip(*parts, strict=True)
    )
    return nodes, weights / jax.lax.stop_gradient(weights.sum(0, keepdims=True))


def _gauss(
    left: Columns, right: Columns
) -> tuple[Float[Array, "nodes panels channels"], Float[Array, "nodes panels channels"]]:
    """The nodes of each panel, and their weights times the normal density."""
    half = ((right - left) / 2)[None]
    x, w = (jnp.asarray(v, left.dtype)[:, None, None] for v in (_NODES, _WEIGHTS))
    nodes = left[None] + half * (1 + x)
    density = jnp.exp(-jnp.square(nodes) / 2) / math.sqrt(2 * math.pi)
    return nodes, half * w * density


def _squeezed(columns: Float[Array, " channels"]) -> Float[Array, "..."]:
    """A scalar for an activation without a parameter per channel."""
    return columns[0] if columns.shape[0] == 1 else columns
