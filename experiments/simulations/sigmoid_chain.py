"""Variances through a deep sigmoid network: plain and linearly constrained weights."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

#: A switch that may be traced, so that one program runs both ways.
Switch = bool | Bool[Array, ""]


class Chain(NamedTuple):
    """Pre-activations and gradients of the layers of a chain, from the first to the last.

    Attributes:
        preactivations: z of each layer.
        gradients: the loss's gradients with respect to z.
    """

    preactivations: Float[Array, "... layers samples units"]
    gradients: Float[Array, "... layers samples units"]


def sigmoid_chain(
    key: Array,
    inputs: Float[Array, "samples features"],
    depth: int,
    *,
    constrained: Switch,
    pooled: Switch = True,
    width: int | None = None,
    classes: int = 10,
) -> Chain:
    """Runs forward and backward through ``depth`` sigmoid layers and a linear classifier.

    Normal random kernels, centered if ``constrained``, are rescaled by one factor per layer to unit
    variance on the samples: the variance of all pre-activations together, units' means included, if
    ``pooled``; otherwise the average of the units' variances. The loss is the cross-entropy with
    random labels. A ``width`` of None is that of the inputs.
    """
    samples, features = inputs.shape
    width = width or features
    first, hidden, head, labels = jax.random.split(key, 4)
    targets = jax.random.randint(labels, (samples,), 0, classes)
    kernels = jax.random.normal(hidden, (depth - 1, width, width))

    def layer(a: Array, kernel: Array) -> Array:
        z = a @ jnp.where(constrained, kernel - kernel.mean(0, keepdims=True), kernel)
        variance = jnp.where(pooled, z.var(), z.var(0).mean())
        # A constant factor: the gradient is the network's, not that of its initialization.
        return z / jax.lax.stop_gradient(jnp.sqrt(variance))

    def loss(offsets: Array) -> Any:
        def step(a: Array, xs: tuple[Array, Array]) -> tuple[Array, Array]:
            kernel, offset = xs
            z = layer(a, kernel) + offset
            return jax.nn.sigmoid(z), z

        a, z = step(inputs, (jax.random.normal(first, (features, width)), offsets[0]))
        a, hidden_z = jax.lax.scan(step, a, (kernels, offsets[1:]))
        logits = layer(a, jax.random.normal(head, (width, classes)))
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1)
        return -chosen.mean(), jnp.concatenate([z[None], hidden_z])

    gradients, z = jax.grad(loss, has_aux=True)(jnp.zeros((depth, samples, width)))
    return Chain(z, gradients)


def pooled_ratio(gradients: Float[Array, "... layers samples units"]) -> Float[Array, "..."]:
    """Returns the variance of the first layer's gradients over that of the last layer's."""
    # Relative to the largest, because squares of a vanished gradient underflow in float32.
    first, last = gradients[..., 0, :, :], gradients[..., -1, :, :]
    return jnp.square(_deviation(first) / _deviation(last))


def _deviation(x: Float[Array, "... samples units"]) -> Float[Array, "..."]:
    largest = jnp.abs(x).max((-2, -1), keepdims=True)
    safe = jnp.where(largest > 0, largest, 1)
    return (x / safe).std((-2, -1)) * safe.squeeze((-2, -1))
