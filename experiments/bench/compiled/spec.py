"""The record of one compilation, whose fields are flags and columns of compiled.csv too."""

from dataclasses import dataclass
from typing import Literal

from tyro.conf import Suppress

What = Literal["step", "update", "effective"]
Shard = Literal["", "fan-in", "units"]
Dtype = Literal["float32", "bfloat16"]

#: The baseline of each kind of program.
BASES = {"step": "none", "update": "sgd", "effective": "plain"}


@dataclass(frozen=True)
class Spec:
    """One compilation, wholly described."""

    target: str = "v5e:4x4"
    """The devices: a TPU (v4, v5e, v5p) and its torus, as v5e:4x4 or v4:2x2x2; a GPU (a100, h100,
    h200) and how many, as h100:8."""
    what: What = "step"
    """The program to compile: a training step of a method; an optimizer's update, or weights from
    raw parameters with the pull-back of their gradient, of 12 kernels of 3 x 3 x 256 x 256."""
    model: str = "cnn9"
    """The network of a step."""
    dtype: Dtype = "bfloat16"
    """The type of a step's weights and activations; parameters and statistics are always
    float32."""
    channels: int = 64
    """The channels of a convolutional network's first stage."""
    depth: int = 3
    """The hidden layers of the mlp, the blocks of the transformer."""
    width: int = 256
    """The units of each hidden layer of the mlp, of each token of the transformer."""
    rows_per_device: int = 128
    """The number of rows per step and device. A row has 224 x 224 colour pixels for resnet50,
    32 x 32 for other networks, and 64 characters for the transformer."""
    shard: Shard = ""
    """Shard every kernel of an update or of weights along its fan-in or its units."""
    method: Suppress[str] = ""
