"""The network of four convolutions of Luo et al. 2019, appendix B."""

from collections.abc import Sequence

from flax import nnx
from jaxtyping import Array, Float

from experiments.models.pooling import max_pool
from experiments.models.style import Style, conv_block, dense_block

#: Each convolution's channels, and the dense layer's units, in multiples of the first's 32.
WIDTHS = (1, 1, 2, 2)
DENSE = 16


class CNN4(nnx.Module):
    """Four 3 x 3 convolutions of 32, 32, 64 and 64 channels, 2 x 2 max pooling, 512 units.

    Args:
        shape: (height, width, channels) of one image.
        num_classes: the number of outputs.
        channels: 64 makes the paper's widths, others are in proportion.
        style: what follows each linear map but the last.
        rngs: the random streams of the initial parameters.

    Source: Luo et al. 2019, appendix B, which prints one pooling, after the convolutions.
    """

    def __init__(
        self,
        shape: Sequence[int],
        num_classes: int,
        *,
        channels: int,
        style: Style,
        rngs: nnx.Rngs,
    ):
        height, width, before = shape
        unit, blocks = max(1, channels // 2), []
        for layer, factor in enumerate(WIDTHS, 1):
            blocks.append(conv_block(before, unit * factor, style.at(layer), rngs))
            before = unit * factor
        self.blocks = nnx.List(blocks)
        flat = max(1, height // 2) * max(1, width // 2) * before
        self.dense = dense_block(flat, DENSE * unit, style.at(len(WIDTHS) + 1), rngs)
        self.head = nnx.Linear(DENSE * unit, num_classes, rngs=rngs)

    def __call__(
        self, x: Float[Array, "rows height width channels"]
    ) -> Float[Array, "rows classes"]:
        for block in self.blocks:
            x = block(x)
        x = max_pool(x)
        return self.head(self.dense(x.reshape(len(x), -1)))
