"""Network of Inception blocks (Szegedy et al. 2015; Ioffe and Szegedy 2015), Haiku."""

from collections.abc import Sequence
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

#: Channels of the four paths, in units of the width, per block; None is a pooling.
BLOCKS = ((2, 3, 1, 1), (2, 4, 2, 1), None, (4, 6, 2, 2), (4, 8, 2, 2))


class ConvNorm(hk.Module):
    """Convolution, batch normalization and a ReLU; without the normalization, with a bias."""

    def __init__(self, channels: int, kernel: int, batch_norm: bool, name: str | None = None):
        super().__init__(name=name)
        self.conv = hk.Conv2D(channels, kernel, with_bias=not batch_norm)
        self.norm = hk.BatchNorm(True, True, 0.9) if batch_norm else None

    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Returns activations."""
        x = self.conv(x)
        if self.norm is not None:
            x = self.norm(x, is_training=train)
        return jax.nn.relu(x)


def logits(x: jax.Array, train: bool, classes: int, batch_norm: bool, width: int = 4) -> jax.Array:
    """Returns logits."""
    conv = lambda channels, kernel, x: ConvNorm(channels, kernel, batch_norm)(x, train)  # noqa: E731
    x = conv(2 * width, 3, x)
    for block in BLOCKS:
        if block is None:
            x = hk.max_pool(x, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
            continue
        one, three, five, pooled = (width * channels for channels in block)
        x = jnp.concatenate(
            [
                conv(one, 1, x),
                conv(three, 3, conv(three // 2, 1, x)),
                conv(five, 3, conv(five, 3, conv(five // 2, 1, x))),
                conv(pooled, 1, hk.max_pool(x, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")),
            ],
            axis=-1,
        )
    return hk.Linear(classes, name="logits")(x.mean((1, 2)))


def network(rngs: nnx.Rngs, shape: Sequence[int], classes: int, batch_norm: bool) -> Any:
    """Returns the network for ``compare --model``, with batch normalization or without it."""
    del rngs, shape

    def forward(x: jax.Array, is_training: bool) -> jax.Array:
        return logits(x, is_training, classes, batch_norm)

    return hk.transform_with_state(forward)
