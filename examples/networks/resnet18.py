"""ResNet-18 for small images (He et al. 2016a), Flax NNX."""

from functools import partial

import jax
from flax import nnx


class Block(nnx.Module):
    """Two convolutions and a shortcut, the activation after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int, rngs: nnx.Rngs):
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        norm = partial(nnx.BatchNorm, momentum=0.9, rngs=rngs)
        self.conv1, self.bn1 = conv(inputs, outputs, (3, 3), stride), norm(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, (3, 3)), norm(outputs)
        self.projects = inputs != outputs or stride != 1
        if self.projects:
            self.conv3, self.bn3 = conv(inputs, outputs, (1, 1), stride), norm(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the activations of the next block."""
        y = nnx.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return nnx.relu(y + (self.bn3(self.conv3(x)) if self.projects else x))


class ResNet18(nnx.Module):
    """Four stages of two blocks."""

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int, width: int = 4):
        self.stem = nnx.Conv(shape[-1], width, (3, 3), use_bias=False, rngs=rngs)
        self.bn = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.blocks = nnx.List([])
        inputs = width
        for stage in range(4):
            outputs = width * 2**stage
            self.blocks.append(Block(inputs, outputs, 2 if stage else 1, rngs))
            self.blocks.append(Block(outputs, outputs, 1, rngs))
            inputs = outputs
        self.head = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = nnx.relu(self.bn(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))
