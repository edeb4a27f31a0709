"""The wide residual network of 28 layers, ten times as wide, for small images."""

from flax import nnx

from experiments.models.preactivation import PreActivationNetwork
from experiments.models.sizes import NetworkSizes
from experiments.models.style import Style

#: How much wider than the first convolution the first stage is.
WIDENING = 10


def wrn28x10(sizes: NetworkSizes, style: Style, rngs: nnx.Rngs) -> PreActivationNetwork:
    """Three stages of four units of 160, 320 and 640 channels, after a convolution to 16.

    Args:
        sizes: of one image, the classes, and channels.
        style: what stands before each convolution but the first.
        rngs: the random streams of the initial parameters.

    Source: Zagoruyko and Komodakis 2016, table 1; Ikami et al. 2021, section 4.1.
    """
    stem = max(1, sizes.channels // 4)
    widths = [stem, *(WIDENING * stem * factor for factor in (1, 2, 4))]
    return PreActivationNetwork(sizes, widths, 4, style, rngs)
