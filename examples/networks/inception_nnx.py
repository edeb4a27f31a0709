"""The network of Inception blocks of `inception.py`, in Flax NNX."""

import jax
import jax.numpy as jnp
from flax import nnx

#: Channels of the four paths, in units of the width, per block; None is a pooling.
BLOCKS = ((2, 3, 1, 1), (2, 4, 2, 1), None, (4, 6, 2, 2), (4, 8, 2, 2))


class ConvNorm(nnx.Module):
    """Convolution, batch normalization and a ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, rngs: nnx.Rngs):
        self.conv = nnx.Conv(inputs, outputs, (kernel, kernel), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(outputs, momentum=0.9, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns activations."""
        return nnx.relu(self.norm(self.conv(x)))


class Block(nnx.Module):
    """Four paths whose channels are concatenated."""

    def __init__(self, inputs: int, channels: tuple[int, ...], rngs: nnx.Rngs):
        one, three, five, pooled = channels
        self.one = ConvNorm(inputs, one, 1, rngs)
        self.three1 = ConvNorm(inputs, three // 2, 1, rngs)
        self.three2 = ConvNorm(three // 2, three, 3, rngs)
        self.five1 = ConvNorm(inputs, five // 2, 1, rngs)
        self.five2 = ConvNorm(five // 2, five, 3, rngs)
        self.five3 = ConvNorm(five, five, 3, rngs)
        self.pooled = ConvNorm(inputs, pooled, 1, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the concatenation."""
        paths = [
            self.one(x),
            self.three2(self.three1(x)),
            self.five3(self.five2(self.five1(x))),
            self.pooled(nnx.max_pool(x, (3, 3), strides=(1, 1), padding="SAME")),
        ]
        return jnp.concatenate(paths, axis=-1)


class Inception(nnx.Module):
    """Four blocks, with a pooling between the second and the third."""

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int, width: int = 4):
        self.stem = ConvNorm(shape[-1], 2 * width, 3, rngs)
        self.blocks = nnx.List([])
        inputs = 2 * width
        for block in BLOCKS:
            if block is None:
                self.blocks.append(None)
                continue
            channels = tuple(width * count for count in block)
            self.blocks.append(Block(inputs, channels, rngs))
            inputs = sum(channels)
        self.logits = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = self.stem(x)
        for block in self.blocks:
            if block is None:
                x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
            else:
                x = block(x)
        return self.logits(x.mean((1, 2)))
