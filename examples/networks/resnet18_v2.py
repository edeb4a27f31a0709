"""ResNet-18 with pre-activation blocks (He et al. 2016b), Flax NNX."""

from functools import partial

import jax
from flax import nnx


class Block(nnx.Module):
    """Normalization and activation in front of each convolution, nothing after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        self.bn1 = nnx.BatchNorm(inputs, rngs=rngs, momentum=0.9)
        self.conv1 = conv(inputs, outputs, (3, 3), stride)
        self.bn2 = nnx.BatchNorm(outputs, rngs=rngs, momentum=0.9)
        self.conv2 = conv(outputs, outputs, (3, 3))
        self.projects = inputs != outputs or stride != 1
        if self.projects:
            self.shortcut = conv(inputs, outputs, (1, 1), stride)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the stream of the next block."""
        y = nnx.relu(self.bn1(x))
        shortcut = self.shortcut(y) if self.projects else x
        y = self.conv1(y)
        y = self.conv2(nnx.relu(self.bn2(y)))
        return shortcut + y


class ResNet18V2(nnx.Module):
    """Four stages of two blocks, and a normalization in front of the classifier."""

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int, width: int = 4):
        self.stem = nnx.Conv(shape[-1], width, (3, 3), use_bias=False, rngs=rngs)
        self.blocks = nnx.List([])
        inputs = width
        for stage in range(4):
            outputs = width * 2**stage
            self.blocks.append(Block(inputs, outputs, 2 if stage else 1, rngs))
            self.blocks.append(Block(outputs, outputs, 1, rngs))
            inputs = outputs
        self.bn = nnx.BatchNorm(inputs, rngs=rngs, momentum=0.9)
        self.head = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(nnx.relu(self.bn(x)).mean((1, 2)))
