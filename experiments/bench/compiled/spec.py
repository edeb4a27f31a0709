"""The record of one compilation, and the function that it compiles."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

What = Literal["step", "update", "effective"]
Shard = Literal["", "fan-in", "units"]
Dtype = Literal["float32", "bfloat16"]

#: The baseline of each kind of row.
BASES = {"step": "none", "update": "sgd", "effective": "plain"}


@dataclass(frozen=True)
class Spec:
    """One compilation, wholly described.

    Attributes:
        what: a training step, an optimizer's update, or weights from raw parameters and back.
        method: the name of the method, the optimizer or the reparametrization.
        target: the name of the devices.
        model: the network of a step; else the kernels.
        dtype: the type of a step's weights and activations.
        shard: the axes along which the kernels of an update are sharded; empty for none.
        channels: the channels of a convolutional network's first stage.
        depth: the hidden layers of the mlp, the blocks of the transformer.
        width: the width of the mlp's hidden layers, or of the transformer's tokens.
        rows: the rows per step and device.
    """

    what: What
    method: str
    target: str
    model: str
    dtype: Dtype = "float32"
    shard: Shard = ""
    channels: int = 64
    depth: int = 3
    width: int = 256
    rows: int = 128

    @property
    def base(self) -> str:
        """The baseline of the row's ratios."""
        return BASES[self.what]

    @property
    def configuration(self) -> "Spec":
        """The spec without the method: rows of one configuration share a table."""
        return replace(self, method="")


class Subject(NamedTuple):
    """A function to compile.

    Attributes:
        function: a pure function of trees of arrays.
        arguments: the shapes, types and shardings of its arguments.
        parameters: the number of parameters on each device.
        donate: the indices of the arguments whose memory results may reuse.
    """

    function: Any
    arguments: tuple[Any, ...]
    parameters: int
    donate: tuple[int, ...] = ()
