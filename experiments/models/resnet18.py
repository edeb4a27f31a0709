"""The 18-layer residual network with full pre-activation, for small images."""

from collections.abc import Sequence
from typing import Any

from experiments.models.preactivation import PreActivationNetwork


def resnet18(
    shape: Sequence[int], num_classes: int, *, channels: int, **rest: Any
) -> PreActivationNetwork:
    """Four stages of two units, of 1, 2, 4 and 8 times ``channels`` channels (the papers: 64).

    Args:
        shape: (height, width, channels) of one image.
        num_classes: the number of outputs.
        channels: the channels of the first stage.
        rest: the style and the random streams.

    Source: He et al. 2016 (identity mappings); Kutsuna 2019, section 6.2.
    """
    widths = [channels * factor for factor in (1, 2, 4, 8)]
    return PreActivationNetwork(shape, num_classes, stem=channels, widths=widths, units=2, **rest)
