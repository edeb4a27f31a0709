"""Second moments through layers of rectified units with weights on the constraint set."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm import project_to_sphere

#: The squared radius c at which a layer of centred weights keeps the second moment of a Gaussian:
#: c (E f^2 - (E f)^2) = c (1/2 - 1/(2 pi)) = 1 for the rectifier f.
KEEPING = 2 * math.pi / (math.pi - 1)


class Moments(NamedTuple):
    """Second moments of each layer, from the first to the last.

    Attributes:
        forward: the mean square of its pre-activations.
        backward: the mean square of a gradient at them, which is 1 at the last layer's output.
    """

    forward: Float[Array, " layers"]
    backward: Float[Array, " layers"]


def rectified_chain(
    key: Array, depth: int, width: int, samples: int, squared_radius: float, *, centered: bool
) -> Moments:
    """Runs forward and backward through ``depth`` layers z -> W relu(z) of random weights.

    Each unit's weights have ||w||^2 = c, and sum to zero if ``centered``. The first
    pre-activations, and the gradient behind the last layer, are standard normal.
    """
    weights_key, start_key, end_key = jax.random.split(key, 3)
    random = jax.random.normal(weights_key, (depth, width, width))
    weights = project_to_sphere(random, -1, squared_radius, centered=centered)
    start, end = (jax.random.normal(k, (samples, width)) for k in (start_key, end_key))

    def forward(z: Array, weight: Array) -> tuple[Array, Array]:
        return jax.nn.relu(z) @ weight.T, z

    _, z = jax.lax.scan(forward, start, weights)

    def backward(gradient: Array, layer: tuple[Array, Array]) -> tuple[Array, Array]:
        weight, z = layer
        gradient = jnp.where(z > 0, gradient @ weight, 0.0)
        return gradient, gradient

    _, gradients = jax.lax.scan(backward, end, (weights, z), reverse=True)
    return Moments(jnp.square(z).mean((1, 2)), jnp.square(gradients).mean((1, 2)))


def gain(moments: Float[Array | np.ndarray, "... layers"]) -> Float[Array | np.ndarray, "..."]:
    """Returns the factor of moments per layer, the geometric mean over layers."""
    layers = moments.shape[-1] - 1
    return (moments[..., -1] / moments[..., 0]) ** (1 / layers)
