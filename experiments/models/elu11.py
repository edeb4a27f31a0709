"""The 11-layer convolutional network of Clevert et al. 2016, which the VCL paper trains."""

from flax import nnx

from experiments.models.pooling import max_pool
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style, conv_block

#: (channels, kernel size) of each convolution, by stack; 2 x 2 max pooling after each stack.
STACKS = (
    ((192, 5),),
    ((192, 1), (240, 3)),
    ((240, 1), (260, 2)),
    ((260, 1), (280, 2)),
    ((280, 1), (300, 2)),
)
#: The channels of the tenth convolution, of size 1 and after the last pooling.
LAST = 300


class ELU11(nnx.Module):
    """Ten convolutions in five pooled stacks and one more, then the classifier, a 1 x 1 one.

    Of 32 x 32 images one position is left after the five stacks; of larger ones their mean, as the
    VCL paper pools after the fifth block of its network for 64 x 64 ones.

    Args:
        sizes: of one image, the classes, and channels.
        style: what follows each convolution but the last; the papers' activation is the ELU.
        rngs: the random streams of the initial parameters.

    Source: Clevert et al. 2016, section 4.2; Littwin and Wolf 2018, section 3.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        before, stacks = sizes.shape[-1], []
        for stack in (*STACKS, ((LAST, 1),)):
            blocks = []
            for width, size in stack:
                after = max(1, width * sizes.channels // 64)
                blocks.append(conv_block(before, after, style, rngs, size))
                before = after
            stacks.append(nnx.List(blocks))
        self.stacks = nnx.List(stacks)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        for index, stack in enumerate(self.stacks):
            for block in stack:
                x = block(x)
            if index < len(STACKS):
                x = max_pool(x)
            if index == len(STACKS) - 1:
                x = x.mean((1, 2), keepdims=True)
        return self.head(x[:, 0, 0])
