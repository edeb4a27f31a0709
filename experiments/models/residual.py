"""Residual networks with the activation after the sum, as in the original paper."""

from collections.abc import Sequence

import jax.numpy as jnp
from flax import nnx

from experiments.models.pooling import max_pool_3x3
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import ACTIVATIONS, Nonlinearity, Style, conv_block

#: (channels, kernel size, stride) of each convolution.
Layers = Sequence[tuple[int, int, int]]


class Residual(nnx.Module):
    """act(branch(x) + shortcut(x)), with a branch of convolutions, the last without activation.

    If the shape changes, the shortcut takes every ``stride``-th position, and either projects it by
    a normalized 1 x 1 convolution or pads the new channels with zeros. Dropout, if any, follows the
    sum.

    Args:
        before: the channels of the input.
        layers: the convolutions of the branch.
        project: if True, the shortcut projects (option B of the paper; otherwise A).
        style: normalizers and activation of the convolutions and the sum.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (deep residual learning), sections 3.3 and 4.
    """

    def __init__(self, before: int, layers: Layers, project: bool, style: Style, rngs: nnx.Rngs):
        inner = style._replace(dropout=0.0)
        linear = inner._replace(activation=ACTIVATIONS["identity"], post_norm=None)
        blocks, width, self.stride = [], before, 1
        for index, (after, size, stride) in enumerate(layers):
            block_style = inner if index < len(layers) - 1 else linear
            blocks.append(conv_block(width, after, block_style, rngs, size, stride=stride))
            width, self.stride = after, self.stride * stride
        self.branch = nnx.List(blocks)
        self.new_channels = width - before
        changes = self.new_channels != 0 or self.stride != 1
        self.shortcut = (
            conv_block(before, width, linear, rngs, 1, stride=self.stride)
            if project and changes
            else None
        )
        self.add = style.add
        self.sum = Nonlinearity(width, style._replace(norm=None), rngs)

    def __call__(self, x: Images) -> Images:
        branch = x
        for block in self.branch:
            branch = block(branch)
        stream = self._unprojected(x) if self.shortcut is None else self.shortcut(x)
        return self.sum(self.add(stream, branch))

    def _unprojected(self, x: Images) -> Images:
        x = x[:, :: self.stride, :: self.stride]
        return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, self.new_channels)))


class ResNet110(nnx.Module):
    """A convolution, 54 residual units of two convolutions in three stages, pooling, a classifier.

    The stages have 16, 32 and 64 channels. Shortcuts have no parameters.

    Args:
        sizes: the shape of an image, the number of classes, and the channels.
        style: normalizers and activation of each convolution and each sum.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (deep residual learning), section 4.2; Ikami et al. 2021, section 4.1.
    """

    #: The number of units in each of the three stages.
    UNITS = 18

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        before = max(1, sizes.channels // 4)
        self.stem = conv_block(sizes.shape[-1], before, style._replace(dropout=0.0), rngs)
        units = []
        for stage in range(3):
            for unit in range(self.UNITS):
                stride = 2 if stage and not unit else 1
                after = before * stride
                layers = ((after, 3, stride), (after, 3, 1))
                units.append(Residual(before, layers, False, style, rngs))
                before = after
        self.units = nnx.List(units)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((1, 2)))


class ResNet50(nnx.Module):
    """A 7 x 7 convolution, max pooling, 16 bottleneck units in four stages, a classifier.

    A stage's stride is in the 3 x 3 convolution of its first unit, as in the training code that
    Ikami et al. follow (Gross and Wilber 2016); it does not change the number of parameters.

    Args:
        sizes: the shape of an image, the number of classes, and the first convolution's channels.
        style: normalizers and activation of each convolution and each sum.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (deep residual learning), table 1; Ikami et al. 2021, section 4.3.
    """

    #: The number of units in each stage.
    STAGES = (3, 4, 6, 3)
    #: The channels of a unit's output over those of its 3 x 3 convolution.
    EXPANSION = 4

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        channels, undropped = sizes.channels, style._replace(dropout=0.0)
        self.stem = conv_block(sizes.shape[-1], channels, undropped, rngs, 7, padding=3, stride=2)
        before, units = channels, []
        for stage, count in enumerate(self.STAGES):
            width = channels * 2**stage
            for unit in range(count):
                stride = 2 if stage and not unit else 1
                layers = ((width, 1, 1), (width, 3, stride), (self.EXPANSION * width, 1, 1))
                units.append(Residual(before, layers, True, style, rngs))
                before = self.EXPANSION * width
        self.units = nnx.List(units)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        x = max_pool_3x3(self.stem(x))
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((1, 2)))
