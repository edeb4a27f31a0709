"""Variances through a deep sigmoid network: plain and linearly constrained weights."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm import center

#: What is made 1 by one factor a layer: the variance of all pre-activations together, units' means
#: included, or the mean over units of each unit's own variance over the samples.
Variance = Literal["pooled", "unit"]


class Chain(NamedTuple):
    """What the layers of a chain hold, from the first to the last.

    Attributes:
        preactivations: z.
        gradients: of the loss, at z.
    """

    preactivations: Float[Array, "... layers samples units"]
    gradients: Float[Array, "... layers samples units"]


def sigmoid_chain(
    key: Array,
    inputs: Float[Array, "samples units"],
    depth: int,
    *,
    constrained: bool,
    classes: int = 10,
    variance: Variance = "pooled",
) -> Chain:
    """One forward and backward pass through ``depth`` sigmoid layers and a linear classifier.

    Normal random kernels, centered if ``constrained``, are rescaled layer by layer to unit variance
    on the samples. The loss is the cross-entropy with random labels.
    """
    samples, width = inputs.shape
    hidden, head, labels = jax.random.split(key, 3)
    targets = jax.random.randint(labels, (samples,), 0, classes)

    def layer(a: Array, kernel: Array) -> Array:
        z = a @ (center(kernel, 0) if constrained else kernel)
        spread = z.var() if variance == "pooled" else z.var(0).mean()
        # A constant: the gradient of the loss is that of the network, not of its initialization.
        return z / jax.lax.stop_gradient(jnp.sqrt(spread))

    def loss(offsets: Array) -> Any:
        def step(a: Array, xs: tuple[Array, Array]) -> tuple[Array, Array]:
            key, offset = xs
            z = layer(a, jax.random.normal(key, (width, width))) + offset
            return jax.nn.sigmoid(z), z

        a, z = jax.lax.scan(step, inputs, (jax.random.split(hidden, depth), offsets))
        logits = layer(a, jax.random.normal(head, (width, classes)))
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1)
        return -chosen.mean(), z

    gradients, z = jax.grad(loss, has_aux=True)(jnp.zeros((depth, samples, width)))
    return Chain(z, gradients)


def pooled_ratio(gradients: Float[Array, "... layers samples units"]) -> Float[Array, "..."]:
    """The variance of the first layer's gradients over that of the last layer's."""
    # In units of the largest: squares of a vanished gradient underflow in float32.
    first, last = gradients[..., 0, :, :], gradients[..., -1, :, :]
    return jnp.square(_deviation(first) / _deviation(last))


def _deviation(x: Float[Array, "... samples units"]) -> Float[Array, "..."]:
    largest = jnp.abs(x).max((-2, -1), keepdims=True)
    safe = jnp.where(largest > 0, largest, 1)
    return (x / safe).std((-2, -1)) * safe.squeeze((-2, -1))
