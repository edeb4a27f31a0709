"""Wide residual network with dropout (Zagoruyko and Komodakis 2016), Flax NNX."""

from functools import partial

import jax
from flax import nnx


class Block(nnx.Module):
    """Pre-activation block with dropout between its two convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float, rngs: nnx.Rngs):
        conv = partial(
            nnx.Conv, use_bias=False, kernel_init=nnx.initializers.he_normal(), rngs=rngs
        )
        self.bn1 = nnx.BatchNorm(inputs, momentum=0.9, rngs=rngs)
        self.conv1 = conv(inputs, outputs, (3, 3), stride)
        self.bn2 = nnx.BatchNorm(outputs, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)
        self.conv2 = conv(outputs, outputs, (3, 3))
        self.projects = inputs != outputs or stride != 1
        if self.projects:
            self.shortcut = conv(inputs, outputs, (1, 1), stride)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the stream of the next block."""
        y = nnx.relu(self.bn1(x))
        shortcut = self.shortcut(y) if self.projects else x
        y = self.dropout(nnx.relu(self.bn2(self.conv1(y))))
        return shortcut + self.conv2(y)


class WideResNet(nnx.Module):
    """Three stages of two blocks: WRN-16 with narrower layers."""

    def __init__(
        self,
        rngs: nnx.Rngs,
        shape: tuple[int, ...],
        classes: int,
        width: int = 8,
        dropout: float = 0.1,
    ):
        self.stem = nnx.Conv(shape[-1], width, (3, 3), use_bias=False, rngs=rngs)
        self.blocks = nnx.List([])
        inputs = width
        for stage in range(3):
            outputs = width * 2**stage
            self.blocks.append(Block(inputs, outputs, 2 if stage else 1, dropout, rngs))
            self.blocks.append(Block(outputs, outputs, 1, dropout, rngs))
            inputs = outputs
        self.bn = nnx.BatchNorm(inputs, momentum=0.9, rngs=rngs)
        self.head = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(nnx.relu(self.bn(x)).mean((1, 2)))
