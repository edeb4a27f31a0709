"""A fully connected network."""

import math

from flax import nnx
from jaxtyping import Array, Float

from experiments.models.sizes import Logits, NetworkSizes
from experiments.models.style import Style, dense_blocks


class MLP(nnx.Module):
    """``depth`` hidden layers of ``width`` units and a linear classifier; any input is flattened.

    Args:
        sizes: the shape of an input, the number of classes, and the hidden layers and their units.
        style: normalizers and activation after each linear map except the last.
        rngs: the random streams of the initial parameters.
    """

    def __init__(self, sizes: NetworkSizes, style: Style, rngs: nnx.Rngs):
        widths = [math.prod(sizes.shape), *[sizes.width] * sizes.depth]
        self.blocks = nnx.List(dense_blocks(widths, style, rngs))
        rate = style.head_dropout
        self.head_dropout = nnx.Dropout(rate, rngs=rngs) if rate else None
        self.head = nnx.Linear(widths[-1], sizes.num_classes, rngs=rngs)

    def __call__(self, x: Float[Array, "rows *shape"]) -> Logits:
        x = x.reshape(len(x), -1)
        for block in self.blocks:
            x = block(x)
        x = x if self.head_dropout is None else self.head_dropout(x)
        return self.head(x)
