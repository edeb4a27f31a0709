"""The 9-layer convolutional network of Ikami et al. 2021, Section 4.1.1."""

import itertools

from flax import nnx

from experiments.models.pooling import average_pool
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style, conv_block


class CNN9(nnx.Module):
    """Three stages of three 3 x 3 convolutions, average pooling between them, then a classifier.

    The stages have 1, 2 and 4 times ``channels`` channels (the paper: 64); the last is averaged
    over all positions. Nine convolutions, which is what the 9 counts.

    Args:
        sizes: of one image, each side at least 4; the classes; the channels of the first stage.
        style: what follows each convolution.
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
