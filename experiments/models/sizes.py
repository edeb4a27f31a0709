"""The sizes that determine the shapes of a network."""

from typing import NamedTuple

from jaxtyping import Array, Float

#: (rows, height, width, channels), where only rows are bound to other arrays of a call.
Images = Float[Array, "rows _ _ _"]
Logits = Float[Array, "rows classes"]


class NetworkSizes(NamedTuple):
    """Sizes of a network; each network uses some of them.

    Attributes:
        shape: the shape of an input; (height, width, channels) of an image.
        num_classes: the number of outputs.
        depth: the number of hidden layers of an mlp, or of blocks of a transformer.
        width: the units of each hidden layer, or of a token.
        channels: a number that the widths of a convolutional network are proportional to; 64 gives
            those of the papers.
    """

    shape: tuple[int, ...]
    num_classes: int
    depth: int
    width: int
    channels: int
