"""The 110-layer residual network of He et al. 2016, for small images."""

from flax import nnx

from experiments.models.residual import Residual
from experiments.models.sizes import Images, Logits, NetworkSizes
from experiments.models.style import Style, conv_block

#: The units of each of the three stages.
UNITS = 18


class ResNet110(nnx.Module):
    """A convolution, 54 residual units of two in three stages, pooling, a classifier.

    The stages have 16, 32 and 64 channels, and the shortcuts no parameters.

    Args:
        sizes: of one image, the classes, and channels.
        style: how each convolution and each sum is normalized and activated.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (deep residual learning), section 4.2; Ikami et al. 2021, section 4.1.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        before = max(1, sizes.channels // 4)
        self.stem = conv_block(sizes.shape[-1], before, style._replace(dropout=0.0), rngs)
        units = []
        for stage in range(3):
            for unit in range(UNITS):
                stride = 2 if stage and not unit else 1
                after = before * stride
                layers = ((after, 3, stride), (after, 3, 1))
                units.append(Residual(before, layers, False, style, rngs))
                before = after
        self.units = nnx.List(units)
        self.head = nnx.Linear(before, sizes.num_classes, rngs=rngs)

    def __call__(self, x: Images) -> Logits:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((1, 2)))
