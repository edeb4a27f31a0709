"""The 19-layer network of Simonyan and Zisserman, for small images."""

from flax import nnx

from experiments.models.pooling import max_pool
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style, conv_block, dense_blocks

#: The convolutions of each stage, and their channels in multiples of the first stage's.
STAGES = ((2, 1), (2, 2), (4, 4), (4, 8), (4, 8))
DROPOUT = 0.5


class VGG19(nnx.Module):
    """16 convolutions in five stages with max pooling after each, then three dense layers.

    The dense layers are as wide as the last stage, with dropout before the first two, and a
    normalizer stands before every activation, as in Kutsuna 2019, section 6.2.

    Args:
        sizes: of one image, of which a side of 1 is not pooled any more; the classes; the channels
            of the first stage.
        style: what follows each linear map but the last.
        rngs: the random streams of the initial parameters and of the dropout.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        height, width, before = sizes.shape
        stages = []
        for count, factor in STAGES:
            blocks = []
            for _ in range(count):
                blocks.append(conv_block(before, sizes.channels * factor, style, rngs))
                before = sizes.channels * factor
            stages.append(nnx.List(blocks))
            height, width = max(height // 2, 1), max(width // 2, 1)
        self.stages = nnx.List(stages)
        self.dense = nnx.List(dense_blocks((height * width * before, before, before), style, rngs))
        self.dropout = nnx.Dropout(DROPOUT, rngs=rngs)
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
