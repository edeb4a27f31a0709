"""Normalization propagation through many layers: means and deviations layer by layer."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm import project_to_sphere, standardized


class Propagated(NamedTuple):
    """Root mean squares over the units' pre-activations of each layer, from the first to the last.

    Attributes:
        offset: of the units' means over the samples; 0 if normalization propagates.
        deviation: of the units' deviations; 1 if normalization propagates.
    """

    offset: Float[Array, " layers"]
    deviation: Float[Array, " layers"]


def propagated_chain(
    key: Array,
    activation: Callable[[Array], Array],
    depth: int,
    width: int,
    samples: int,
    *,
    centered: bool,
) -> Propagated:
    """Runs normal inputs through ``depth`` layers z -> W g(z) of random unit-norm rows.

    g is the standardized activation; the rows sum to zero if ``centered``.
    """
    weights_key, start_key = jax.random.split(key)
    random = jax.random.normal(weights_key, (depth, width, width))
    weights = project_to_sphere(random, -1, 1.0, centered=centered)
    layer = standardized(activation)

    def forward(a: Array, weight: Array) -> tuple[Array, Propagated]:
        z = a @ weight.T
        offset = jnp.sqrt(jnp.square(z.mean(0)).mean())
        return layer(z), Propagated(offset, jnp.sqrt(z.var(0).mean()))

    start = jax.random.normal(start_key, (samples, width))
    propagated: Propagated
    _, propagated = jax.lax.scan(forward, start, weights)
    return propagated
