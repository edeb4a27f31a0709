"""Plain convolutional networks: convolutions one after the other, pooling, a classifier."""

import itertools
from collections.abc import Sequence
from typing import Any

from flax import nnx

from experiments.models.pooling import average_pool, average_pool_3x3, max_pool, max_pool_3x3
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style, conv_block, dense_block, dense_blocks

#: (channels, kernel size, and padding if the sides change) of each convolution, by stage; the
#: channels are those of networks whose `NetworkSizes.channels` are 64.
Stages = Sequence[Sequence[tuple[int, ...]]]


def conv_stages(
    sizes: NetworkSizes, stages: Stages, style: Style, rngs: nnx.Rngs
) -> tuple[list[Any], int]:
    """Makes the blocks of each stage; also returns the channels after the last one."""
    before, made_stages = sizes.shape[-1], []
    for stage in stages:
        blocks = []
        for width, *size_and_padding in stage:
            after = max(1, width * sizes.channels // 64)
            blocks.append(conv_block(before, after, style, rngs, *size_and_padding))
            before = after
        made_stages.append(nnx.List(blocks))
    return made_stages, before


class CNN4(nnx.Module):
    """Four 3 x 3 convolutions of 32, 32, 64 and 64 channels, 2 x 2 max pooling, 512 units.

    Args:
        sizes: the shape of an image, the number of classes, and the channels.
        style: normalizers and activation after each linear map except the last.
        rngs: the random streams of the initial parameters.

    Source: Luo et al. 2019, appendix B, which prints one pooling, after the convolutions.
    """

    #: The channels of each convolution, and the units of the dense layer, over the first's 32.
    WIDTHS = (1, 1, 2, 2)
    DENSE = 16

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        height, width, before = sizes.shape
        unit, blocks = max(1, sizes.channels // 2), []
        for layer, factor in enumerate(self.WIDTHS, 1):
            blocks.append(conv_block(before, unit * factor, style.at(layer), rngs))
            before = unit * factor
        self.blocks = nnx.List(blocks)
        flat = max(1, height // 2) * max(1, width // 2) * before
        self.dense = dense_block(flat, self.DENSE * unit, style.at(len(self.WIDTHS) + 1), rngs)
        self.head = nnx.Linear(self.DENSE * unit, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        for block in self.blocks:
            x = block(x)
        x = max_pool(x)
        return self.head(self.dense(x.reshape(len(x), -1)))


class CNN9(nnx.Module):
    """Three stages of three 3 x 3 convolutions, average pooling between them, then a classifier.

    The stages have 1, 2 and 4 times ``channels`` channels (the paper: 64), and the last stage is
    averaged over all positions. The 9 counts the convolutions.

    Args:
        sizes: the shape of an image, with sides of at least 4; the number of classes; the channels
            of the first stage.
        style: normalizers and activation after each convolution.
        rngs: the random streams of the initial parameters.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        stages = (sizes.channels * factor for factor in (1, 1, 1, 2, 2, 2, 4, 4, 4))
        widths = [sizes.shape[-1], *stages]
        self.blocks = nnx.List(
            conv_block(before, after, style, rngs) for before, after in itertools.pairwise(widths)
        )
        self.head = nnx.Linear(widths[-1], sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        for index, block in enumerate(self.blocks):
            if index in (3, 6):
                x = average_pool(x)
            x = block(x)
        return self.head(x.mean((1, 2)))


class ELU11(nnx.Module):
    """Ten convolutions in six stacks, pooling after each stack except the last, and a classifier.

    The five stacks reduce 32 x 32 images to one position; of larger images the positions are
    averaged, as the VCL paper does after the fifth block of its network for 64 x 64 images.

    Args:
        sizes: the shape of an image, the number of classes, and the channels.
        style: normalizers and activation after each convolution; the papers' activation is ELU.
        rngs: the random streams of the initial parameters.

    Source: Clevert et al. 2016, section 4.2; Littwin and Wolf 2018, section 3.
    """

    #: (channels, kernel size) of each convolution, by stack; 2 x 2 max pooling follows each stack
    #: except the last.
    STACKS: Stages = (
        ((192, 5),),
        ((192, 1), (240, 3)),
        ((240, 1), (260, 2)),
        ((260, 1), (280, 2)),
        ((280, 1), (300, 2)),
        ((300, 1),),
    )

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        stacks, before = conv_stages(sizes, self.STACKS, style, rngs)
        self.stacks = nnx.List(stacks)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        for index, stack in enumerate(self.stacks):
            for block in stack:
                x = block(x)
            if index < len(self.stacks) - 1:
                x = max_pool(x)
            if index == len(self.stacks) - 2:
                x = x.mean((1, 2), keepdims=True)
        return self.head(x[:, 0, 0])


class NIN(nnx.Module):
    """Eight convolutions in three stages, max and average pooling between them, a classifier.

    Args:
        sizes: the shape of an image, at least 20 x 20; the number of classes, and the channels.
        style: normalizers and activation after each convolution.
        rngs: the random streams of the initial parameters.

    Source: Arpit et al. 2016, section 5. Their classifier is the last 1 x 1 convolution, averaged
    over all positions; here the positions are averaged first, which is the same function.
    """

    #: (channels, kernel size, padding) of each convolution, by stage. The last two paddings are the
    #: paper's: the 5 x 5 convolution removes four positions per side, the 1 x 1 one pads them.
    STAGES: Stages = (
        ((192, 5, 2), (160, 1, 0)),
        ((96, 1, 0), (192, 5, 2), (192, 1, 0)),
        ((192, 1, 0), (192, 5, 0), (192, 1, 2)),
    )

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        stages, before = conv_stages(sizes, self.STAGES, style, rngs)
        self.stages = nnx.List(stages)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        return self.head(self.activations(x)[-1].mean((1, 2)))

    def activations(self, x: Images) -> list[Images]:
        """Returns the output of each hidden layer, after its pooling if any."""
        outputs = []
        for index, stage in enumerate(self.stages):
            for block in stage:
                x = block(x)
                outputs.append(x)
            if index < 2:
                pool = (max_pool_3x3, average_pool_3x3)[index]
                x = outputs[-1] = pool(x)
        return outputs


class VGG19(nnx.Module):
    """16 convolutions in five stages with max pooling after each, then three dense layers.

    The dense layers are as wide as the last stage, with dropout before the first two. A normalizer
    precedes every activation, as in Kutsuna 2019, section 6.2.

    Args:
        sizes: the shape of an image, whose sides are pooled down to 1; the number of classes; the
            channels of the first stage.
        style: normalizers and activation after each linear map except the last.
        rngs: the random streams of the initial parameters and of the dropout.
    """

    #: The channels of each convolution, by stage.
    STAGES: Stages = tuple(
        ((64 * factor, 3),) * count for count, factor in ((2, 1), (2, 2), (4, 4), (4, 8), (4, 8))
    )
    DROPOUT = 0.5

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        height, width, _ = sizes.shape
        stages, before = conv_stages(sizes, self.STAGES, style, rngs)
        self.stages = nnx.List(stages)
        for _ in stages:
            height, width = max(height // 2, 1), max(width // 2, 1)
        self.dense = nnx.List(dense_blocks((height * width * before, before, before), style, rngs))
        self.dropout = nnx.Dropout(self.DROPOUT, rngs=rngs)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        for stage in self.stages:
            for block in stage:
                x = block(x)
            x = max_pool(x)
        x = x.reshape(len(x), -1)
        for block in self.dense:
            x = block(self.dropout(x))
        return self.head(x)
