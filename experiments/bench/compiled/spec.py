"""The record of one compilation, and the function that it compiles."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

What = Literal["step", "update", "effective"]
Shard = Literal["", "fan-in", "units"]

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
        entry: the parallelism of a step, ``jit`` or ``shard_map``.
        mesh: the mesh of devices; empty for all along ``data``.
        shard: the axes along which kernels are sharded; empty for none.
        channels: the channels of a convolutional network's first stage.
        depth: the hidden layers of the mlp, the blocks of the transformer.
        width: the width of the mlp's hidden layers, or of the transformer's tokens.
        rows: the rows per step and device of the data axis.
        donate: if True, results reuse the memory of the state that they replace, as in training.
    """

    what: What
    method: str
    target: str
    model: str
    dtype: str = "float32"
    entry: str = "jit"
    mesh: str = ""
    shard: Shard = ""
    channels: int = 64
    depth: int = 3
    width: int = 256
    rows: int = 128
    donate: bool = True

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
        local: the function for one device, and the shapes of its arguments.
        parameters: the number of parameters on each device.
        donate: the indices of the arguments whose memory results may reuse.
    """

    function: Any
    arguments: tuple[Any, ...]
    local: tuple[Any, tuple[Any, ...]]
    parameters: int
    donate: tuple[int, ...] = ()
