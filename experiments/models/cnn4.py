"""The network of four convolutions of Luo et al. 2019, appendix B."""

from flax import nnx

from experiments.models.pooling import max_pool
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style, conv_block, dense_block

#: Each convolution's channels, and the dense layer's units, in multiples of the first's 32.
WIDTHS = (1, 1, 2, 2)
DENSE = 16


class CNN4(nnx.Module):
    """Four 3 x 3 convolutions of 32, 32, 64 and 64 channels, 2 x 2 max pooling, 512 units.

    Args:
        sizes: of one image, the classes, and channels.
        style: what follows each linear map but the last.
        rngs: the random streams of the initial parameters.

    Source: Luo et al. 2019, appendix B, which prints one pooling, after the convolutions.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        height, width, before = sizes.shape
        unit, blocks = max(1, sizes.channels // 2), []
        for layer, factor in enumerate(WIDTHS, 1):
            blocks.append(conv_block(before, unit * factor, style.at(layer), rngs))
            before = unit * factor
        self.blocks = nnx.List(blocks)
        flat = max(1, height // 2) * max(1, width // 2) * before
        self.dense = dense_block(flat, DENSE * unit, style.at(len(WIDTHS) + 1), rngs)
        self.head = nnx.Linear(DENSE * unit, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        for block in self.blocks:
            x = block(x)
        x = max_pool(x)
        return self.head(self.dense(x.reshape(len(x), -1)))
