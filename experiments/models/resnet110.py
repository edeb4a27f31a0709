"""The 110-layer residual network of He et al. 2016, for small images."""

from collections.abc import Sequence

from flax import nnx
from jaxtyping import Array, Float

from experiments.models.residual import Residual
from experiments.models.style import Style, conv_block

#: The units of each of the three stages.
UNITS = 18


class ResNet110(nnx.Module):
    """A convolution, 54 residual units of two in three stages, pooling, a classifier.

    The stages have 16, 32 and 64 channels, and the shortcuts no parameters.

    Args:
        shape: (height, width, channels) of one image.
        num_classes: the number of outputs.
        channels: 64 makes the paper's widths, others are in proportion.
        style: how each convolution and each sum is normalized and activated.
        rngs: the random streams of the initial parameters.

    Source: He et al. 2016 (deep residual learning), section 4.2; Ikami et al. 2021, section 4.1.
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
        before = max(1, channels // 4)
        self.stem = conv_block(shape[-1], before, style._replace(dropout=0.0), rngs)
        units = []
        for stage in range(3):
            for unit in range(UNITS):
                stride = 2 if stage and not unit else 1
                after = before * stride
                layers = ((after, 3, stride), (after, 3, 1))
                units.append(Residual(before, layers, False, style, rngs))
                before = after
        self.units = nnx.List(units)
        self.head = nnx.Linear(before, num_classes, rngs=rngs)

    def __call__(
        self, x: Float[Array, "rows height width channels"]
    ) -> Float[Array, "rows classes"]:
        x = self.stem(x)
        for unit in self.units:
            x = unit(x)
        return self.head(x.mean((1, 2)))
