"""DenseNet with bottlenecks and compression (Huang et al. 2017), Flax NNX."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx


class DenseLayer(nnx.Module):
    """Concatenates ``growth`` new channels to its input."""

    def __init__(self, inputs: int, growth: int, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        norm = partial(nnx.BatchNorm, momentum=0.9, rngs=rngs)
        self.norm1, self.conv1 = norm(inputs), conv(inputs, 4 * growth, (1, 1))
        self.norm2, self.conv2 = norm(4 * growth), conv(4 * growth, growth, (3, 3))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the input with its new channels."""
        y = self.conv1(nnx.relu(self.norm1(x)))
        y = self.conv2(nnx.relu(self.norm2(y)))
        return jnp.concatenate([x, y], axis=-1)


class DenseNet(nnx.Module):
    """Three dense blocks, with transitions that halve channels and sides."""

    def __init__(
        self,
        rngs: nnx.Rngs,
        shape: tuple[int, ...],
        classes: int,
        growth: int = 4,
        layers: tuple[int, ...] = (3, 3, 3),
    ):
        channels = 2 * growth
        self.stem = nnx.Conv(shape[-1], channels, (3, 3), use_bias=False, rngs=rngs)
        self.blocks, self.norms, self.transitions = nnx.List([]), nnx.List([]), nnx.List([])
        for index, count in enumerate(layers):
            if index:
                self.norms.append(nnx.BatchNorm(channels, momentum=0.9, rngs=rngs))
                transition = nnx.Conv(channels, channels // 2, (1, 1), use_bias=False, rngs=rngs)
                self.transitions.append(transition)
                channels //= 2
            self.blocks.append(
                nnx.List([DenseLayer(channels + i * growth, growth, rngs) for i in range(count)])
            )
            channels += count * growth
        self.norm = nnx.BatchNorm(channels, momentum=0.9, rngs=rngs)
        self.classifier = nnx.Linear(channels, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = self.stem(x)
        for index, block in enumerate(self.blocks):
            if index:
                x = self.transitions[index - 1](nnx.relu(self.norms[index - 1](x)))
                x = nnx.avg_pool(x, (2, 2), strides=(2, 2))
            for layer in block:
                x = layer(x)
        return self.classifier(nnx.relu(self.norm(x)).mean((1, 2)))
