"""The wide residual network of 28 layers, ten times as wide, for small images."""

from collections.abc import Sequence
from typing import Any

from experiments.models.preactivation import PreActivationNetwork

#: How much wider than the first convolution the first stage is.
WIDENING = 10


def wrn28x10(
    shape: Sequence[int], num_classes: int, *, channels: int, **rest: Any
) -> PreActivationNetwork:
    """Three stages of four units of 160, 320 and 640 channels, after a convolution to 16.

    Args:
        shape: (height, width, channels) of one image.
        num_classes: the number of outputs.
        channels: 64 makes the paper's widths, others are in proportion.
        rest: the style and the random streams.

    Source: Zagoruyko and Komodakis 2016, table 1; Ikami et al. 2021, section 4.1.
    """
    stem = max(1, channels // 4)
    widths = [WIDENING * stem * factor for factor in (1, 2, 4)]
    return PreActivationNetwork(shape, num_classes, stem=stem, widths=widths, units=4, **rest)
