"""The 18-layer residual network with full pre-activation, for small images."""

from flax import nnx

from experiments.models.preactivation import PreActivationNetwork
from experiments.models.sizes import NetworkSizes
from experiments.models.style import Style


def resnet18(sizes: NetworkSizes, style: Style, rngs: nnx.Rngs) -> PreActivationNetwork:
    """Four stages of two units, of 1, 2, 4 and 8 times ``channels`` channels (the papers: 64).

    Args:
        sizes: of one image, the classes, and the channels of the first stage.
        style: what stands before each convolution but the first.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (identity mappings); Kutsuna 2019, section 6.2.
    """
    widths = [sizes.channels * factor for factor in (1, 1, 2, 4, 8)]
    return PreActivationNetwork(sizes, widths, 2, style, rngs)
