"""What is compiled: one row of the results."""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

What = Literal["step", "update", "effective"]
Shard = Literal["", "fan-in", "units"]

#: What each kind of row is compared with.
BASES = {"step": "none", "update": "sgd", "effective": "plain"}


@dataclass(frozen=True)
class Spec:
    """One compilation, wholly described.

    Attributes:
        what: a training step, an optimizer's update, or weights from raw parameters and back.
        method: the name of the method, the optimizer or the reparametrization.
        target: the devices, as the user names them.
        model: the network of a step; else the kernels.
        dtype: of a step's weights and activations.
        entry: how a step is spread over the devices.
        mesh: of the devices; empty for all along ``data``.
        shard: along which of its axes a kernel is cut in pieces, one a device; empty for none.
        channels: of a convolutional network's first stage.
        depth: the hidden layers of the mlp, the blocks of the transformer.
        width: of the mlp's hidden layers, of the transformer's tokens.
        rows: of a step, on each device that has rows of its own.
        donate: whether results take the memory of the state that they replace, as in training.
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
        """The method that ratios are over."""
        return BASES[self.what]

    @property
    def configuration(self) -> "Spec":
        """All but the method: rows with the same one stand beside each other."""
        return replace(self, method="")


class Subject(NamedTuple):
    """A function to compile.

    Attributes:
        function: pure, of trees of arrays.
        arguments: their shapes, types and places.
        local: the same for one device: the function, and its arguments' shapes.
        parameters: the number of them that each device holds.
        donate: the arguments that results may take the place of.
    """

    function: Any
    arguments: tuple[Any, ...]
    local: tuple[Any, tuple[Any, ...]]
    parameters: int
    donate: tuple[int, ...] = ()
