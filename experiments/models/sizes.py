"""What the shapes of a network follow from."""

from typing import NamedTuple

from jaxtyping import Array, Float

#: (rows, height, width, channels), which need not be those of another array of the same call.
Images = Float[Array, "rows _ _ _"]
Logits = Float[Array, "rows classes"]


class NetworkSizes(NamedTuple):
    """What every network is told of its shapes; it reads what it has use for.

    Attributes:
        shape: of one input; of an image (height, width, channels).
        num_classes: the number of outputs.
        depth: the hidden layers of an mlp, the blocks of a transformer.
        width: the units of each of them.
        channels: what the widths of a convolutional network are in proportion to; 64 makes those
            of the papers.
    """

    shape: tuple[int, ...]
    num_classes: int
    depth: int
    width: int
    channels: int
