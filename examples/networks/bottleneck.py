"""ResNet with bottleneck blocks, Flax Linen, after Flax's example for ImageNet."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
from flax import nnx


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, and a shortcut."""

    filters: int
    stride: int
    conv: Callable[..., Any]
    norm: Callable[..., Any]
    last_scale: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the activations of the next block."""
        strides = (self.stride, self.stride)
        y = nn.relu(self.norm()(self.conv(self.filters, (1, 1))(x)))
        y = nn.relu(self.norm()(self.conv(self.filters, (3, 3), strides)(y)))
        y = self.conv(4 * self.filters, (1, 1))(y)
        y = self.norm(scale_init=nn.initializers.constant(self.last_scale))(y)
        if x.shape != y.shape:
            x = self.conv(4 * self.filters, (1, 1), strides, name="conv_proj")(x)
            x = self.norm(name="norm_proj")(x)
        return nn.relu(x + y)


class Identity(nn.Module):
    """Identity function in the place of a normalization; it ignores the normalization's options."""

    scale_init: Any = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns ``x``."""
        return x


class BottleneckResNet(nn.Module):
    """Three stages of two blocks; without batch normalization the convolutions have biases."""

    classes: int
    width: int = 4
    batch_norm: bool = True
    last_scale: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
        """Returns logits."""
        conv = partial(nn.Conv, use_bias=not self.batch_norm)
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        norm = norm if self.batch_norm else Identity
        x = nn.relu(norm(name="bn_init")(conv(self.width, (3, 3), name="conv_init")(x)))
        for stage in range(3):
            for block in range(2):
                stride = 2 if stage and not block else 1
                x = Bottleneck(self.width * 2**stage, stride, conv, norm, self.last_scale)(x)
        return nn.Dense(self.classes, name="head")(x.mean((1, 2)))


def network(rngs: nnx.Rngs, shape: Sequence[int], classes: int, batch_norm: bool) -> nn.Module:
    """Returns the network for ``compare --model``, with batch normalization or without it."""
    del rngs, shape
    return BottleneckResNet(classes, batch_norm=batch_norm)
