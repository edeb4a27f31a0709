"""Networks of standard widths for photographs of 32 x 32 pixels, Flax NNX."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from examples.networks.mobilenet import ConvNorm, InvertedResidual
from examples.networks.resnet18 import ResNet18
from examples.networks.vgg import VGG

#: Channels of VGG16 in units of 64; None is a pooling.
VGG16_LAYERS = (1, 1, None, 2, 2, None, 4, 4, 4, None, 8, 8, 8, None, 8, 8, 8)


class Bottleneck(nnx.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, and a shortcut (He et al. 2016a)."""

    def __init__(self, inputs: int, filters: int, stride: int, rngs: nnx.Rngs):
        self.first = ConvNorm(inputs, filters, 1, rngs)
        self.second = ConvNorm(filters, filters, 3, rngs, stride)
        self.third = ConvNorm(filters, 4 * filters, 1, rngs)
        self.projects = inputs != 4 * filters or stride != 1
        if self.projects:
            self.shortcut = ConvNorm(inputs, 4 * filters, 1, rngs, stride)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the activations of the next block."""
        y = nnx.relu(self.second(nnx.relu(self.first(x))))
        return nnx.relu(self.third(y) + (self.shortcut(x) if self.projects else x))


class BottleneckNet(nnx.Module):
    """Stages of bottleneck blocks on a 3 x 3 stem: ResNet-50 with (3, 4, 6, 3) blocks."""

    def __init__(
        self,
        rngs: nnx.Rngs,
        shape: tuple[int, ...],
        classes: int,
        width: int = 64,
        blocks: tuple[int, ...] = (3, 4, 6, 3),
    ):
        self.stem = ConvNorm(shape[-1], width, 3, rngs)
        self.blocks = nnx.List([])
        inputs = width
        for stage, count in enumerate(blocks):
            filters = width * 2**stage
            for index in range(count):
                stride = 2 if stage and not index else 1
                self.blocks.append(Bottleneck(inputs, filters, stride, rngs))
                inputs = 4 * filters
        self.head = nnx.Linear(inputs, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = nnx.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


class ShuffleUnit(nnx.Module):
    """Splits the channels, transforms one half, concatenates and shuffles (Ma et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int, rngs: nnx.Rngs):
        self.stride = stride
        half = outputs // 2
        branch = inputs if stride == 2 else half
        self.expand = ConvNorm(branch, half, 1, rngs)
        self.depthwise = ConvNorm(half, half, 3, rngs, stride, groups=half)
        self.project = ConvNorm(half, half, 1, rngs)
        if stride == 2:
            self.side_depthwise = ConvNorm(inputs, inputs, 3, rngs, 2, groups=inputs)
            self.side_project = ConvNorm(inputs, half, 1, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns the input of the next unit."""
        if self.stride == 2:
            side, x = nnx.relu(self.side_project(self.side_depthwise(x))), x
        else:
            side, x = jnp.split(x, 2, axis=-1)
        y = nnx.relu(self.expand(x))
        y = nnx.relu(self.project(self.depthwise(y)))
        pairs = jnp.stack([side, y], axis=-1)
        return pairs.reshape(*y.shape[:-1], -1)


class ShuffleNetV2(nnx.Module):
    """ShuffleNetV2 of size 1 (116, 232, 464 channels) on a 3 x 3 stem without strides."""

    def __init__(
        self,
        rngs: nnx.Rngs,
        shape: tuple[int, ...],
        classes: int,
        width: int = 116,
        units: tuple[int, ...] = (4, 8, 4),
    ):
        self.stem = ConvNorm(shape[-1], 24, 3, rngs)
        self.units = nnx.List([])
        inputs = 24
        for stage, count in enumerate(units):
            outputs = width * 2**stage
            for index in range(count):
                self.units.append(ShuffleUnit(inputs, outputs, 1 if index else 2, rngs))
                inputs = outputs
        self.last = ConvNorm(inputs, 1024, 1, rngs)
        self.classifier = nnx.Linear(1024, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = nnx.relu(self.stem(x))
        for unit in self.units:
            x = unit(x)
        return self.classifier(nnx.relu(self.last(x)).mean((1, 2)))


class WideMobileNetV2(nnx.Module):
    """MobileNetV2 of width 1: its 17 blocks, with the first two strides taken out."""

    #: Expansion, channels, blocks and first stride of each stage.
    STAGES = (
        (1, 16, 1, 1),
        (6, 24, 2, 1),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, rngs: nnx.Rngs, shape: tuple[int, ...], classes: int, width: int = 32):
        self.stem = ConvNorm(shape[-1], width, 3, rngs)
        self.blocks = nnx.List([])
        inputs = width
        for expansion, channels, count, stride in self.STAGES:
            outputs = channels * width // 32
            for index in range(count):
                first = 1 if index else stride
                self.blocks.append(InvertedResidual(inputs, outputs, first, expansion, rngs))
                inputs = outputs
        self.last = ConvNorm(inputs, 40 * width, 1, rngs)
        self.classifier = nnx.Linear(40 * width, classes, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns logits."""
        x = nnx.relu6(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.classifier(nnx.relu6(self.last(x)).mean((1, 2)))


wide_resnet18 = partial(ResNet18, width=64)
vgg16 = partial(VGG, width=64, layers=VGG16_LAYERS)
