"""The network in network of Lin et al. 2014, as the normalization propagation paper has it."""

from flax import nnx

from experiments.models.pooling import average_pool_3x3, max_pool_3x3
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style, conv_block

#: (channels, kernel size, padding) of each convolution, by stage. The last two paddings are the
#: paper's: the 5 x 5 convolution takes four positions a side, and the 1 x 1 one pads them back.
STAGES = (
    ((192, 5, 2), (160, 1, 0)),
    ((96, 1, 0), (192, 5, 2), (192, 1, 0)),
    ((192, 1, 0), (192, 5, 0), (192, 1, 2)),
)

#: After the first and the second stage.
POOLS = (max_pool_3x3, average_pool_3x3)


class NIN(nnx.Module):
    """Eight convolutions in three stages, max and average pooling between them, a classifier.

    Args:
        sizes: of one image, at least 20 x 20; the classes, and channels.
        style: what follows each convolution but the last.
        rngs: the random streams of the initial parameters.

    Source: Arpit et al. 2016, section 5. The classifier is their last 1 x 1 convolution, which is
    averaged over all positions; here the positions are averaged first, which is the same function.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        before, stages = sizes.shape[-1], []
        for stage in STAGES:
            blocks = []
            for width, size, padding in stage:
                after = max(1, width * sizes.channels // 64)
                blocks.append(conv_block(before, after, style, rngs, size, padding))
                before = after
            stages.append(nnx.List(blocks))
        self.stages = nnx.List(stages)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        return self.head(self.activations(x)[-1].mean((1, 2)))

    def activations(self, x: Images) -> list[Images]:
        """The output of each hidden layer, pooled where it is."""
        outputs = []
        for index, stage in enumerate(self.stages):
            for block in stage:
                x = block(x)
                outputs.append(x)
            if index < 2:
                x = outputs[-1] = POOLS[index](x)
        return outputs
