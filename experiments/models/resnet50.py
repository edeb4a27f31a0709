"""The 50-layer residual network of He et al. 2016, for ImageNet."""

from flax import nnx

from experiments.models.pooling import max_pool_3x3
from experiments.models.residual import Residual
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style, conv_block

#: The units of each stage.
STAGES = (3, 4, 6, 3)
#: The channels of a unit's output, in multiples of its 3 x 3 convolution's.
EXPANSION = 4


class ResNet50(nnx.Module):
    """A 7 x 7 convolution, max pooling, 16 bottleneck units in four stages, a classifier.

    A stage's stride is in the 3 x 3 convolution of its first unit, as in the training code that
    Ikami et al. follow (Gross and Wilber 2016); it does not change the number of parameters.

    Args:
        sizes: of one image, the classes, and the channels of the first convolution.
        style: how each convolution and each sum is normalized and activated.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (deep residual learning), table 1; Ikami et al. 2021, section 4.3.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        channels, undropped = sizes.channels, style._replace(dropout=0.0)
        self.stem = conv_block(sizes.shape[-1], channels, undropped, rngs, 7, padding=3, stride=2)
        before, units = channels, []
        for stage, count in enumerate(STAGES):
            width = channels * 2**stage
            for unit in range(count):
                stride = 2 if stage and not unit else 1
                layers = ((width, 1, 1), (width, 3, stride), (EXPANSION * width, 1, 1))
                units.append(Residual(before, layers, True, style, rngs))
                before = EXPANSION * width
        self.units = nnx.List(units)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        x = max_pool_3x3(self.stem(x))
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((1, 2)))
