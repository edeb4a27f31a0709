"""The settings of a training: the one record that flags, papers, checkpoints and training share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from tyro.conf import Suppress, arg

from experiments.names import (
    ACTIVATIONS,
    AUGMENTATIONS,
    MODELS,
    POLICIES,
    POLICIES_FILE,
    network_for,
)
from experiments.ranges import Channels, Count, Depth, Epochs, Range, Strength, Width

#: What is done about a step that would make something not finite. ``record``: the run goes on with
#: what it got. ``stop``: it ends, and says where. ``skip``: the update is left out.
NonFinite = Literal["record", "stop", "skip"]

#: How a step runs on several devices.
Entry = Literal["jit", "shard_map", "pmap"]

#: A configuration of any kind: the tests execute annotations, and cannot execute `Self`.
AnyConfig = TypeVar("AnyConfig", bound="Config")


@dataclass(frozen=True)
class Network:
    """The network that is trained."""

    model: Annotated[
        str,
        arg(
            help=f"The network: {', '.join(MODELS)}. If the flag is left out, the network follows "
            "the data: cnn9 for images, dgcnn for point clouds, mlp for rows of features; "
            "--dataset python wants transformer."
        ),
    ] = ""
    activation: Annotated[
        str,
        arg(
            help="The activation, for methods that have none of their own: "
            f"{', '.join(ACTIVATIONS)}."
        ),
    ] = "relu"
    depth: Depth = 3
    """The number of hidden layers of the mlp, or of blocks of a transformer."""
    width: Width = 256
    """The number of units of each hidden layer of the mlp, or of each token of the transformer."""
    channels: Channels = 16
    """The channels of a convolutional network's first stage, 64 in the papers; the later ones of
    cnn9 have twice and four times as many."""
    constrain_head: bool = False
    """Also constrain the classifier's kernel, which methods leave free otherwise."""


# The defaults of the optimizer were chosen on the digits' splits 100 to 104, which ``compare`` does
# not use unless asked for more than a hundred seeds: at a learning rate of 0.1 and more, some
# methods diverge under some seeds.
@dataclass(frozen=True)
class Training:
    """How the network is trained."""

    epochs: Epochs = 10
    """The passes over the training rows."""
    batch_size: Count = 64
    """The rows of one step. The rows of an epoch that fill no whole batch are not trained on."""
    optimizer: Literal["sgd", "adam", "muon"] = "sgd"
    """SGD with momentum 0.9, Adam, or Muon on kernels and Adam on the rest; adam and muon want a
    --learning-rate near 0.001."""
    # As far as float32 goes: whether a run diverges is told when it does.
    learning_rate: Annotated[float, Range(0, 3e38, without=0)] = 0.05
    """The initial learning rate, for all methods; half a cosine takes it to 0."""
    weight_decay: Strength = 1e-3
    """Weight decay on kernels (decoupled with adam); scales and biases have none."""
    ghost_groups: Count = 1
    """The parts of a batch that batch normalization (ghost batches) and the variance constancy loss
    see apart. With 1, batch normalization sees the whole batch under --parallel jit, on any number
    of devices. Under shard_map and pmap it sees each device's rows, as it does under jit with as
    many groups as devices. The loss has a part on each device."""
    augment: Annotated[
        str,
        arg(
            help=f"How training rows are changed, anew in each epoch: {', '.join(AUGMENTATIONS)}. "
            f"{POLICIES}:{POLICIES_FILE} takes its authors' sub-policies."
        ),
    ] = "none"
    accumulate: Count = 1
    """The parts of a batch that go through the network one after the other, to save memory."""
    epsilon: Annotated[float | None, Range(0, 10**6, without=0)] = None
    """Train with differential privacy: epsilon of the whole training, at a delta of 1 / (10 rows).
    The gradient of each row is clipped at norm 1, and noise is added to the mean of the gradients.
    Methods whose rows see each other, as batch normalization, cannot be trained in this way."""
    clients: Count | None = None
    """The number of clients of federated averaging. In each epoch every client trains apart, on its
    own rows, which are mostly of two classes. Training goes on from the mean of the clients'
    weights, which is put back on its constraint."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type of weights and activations in training; parameters and statistics are always
    float32."""
    rate_schedule: Suppress[tuple[tuple[float, float], ...]] = ()
    """(fraction of training, factor on the initial rate) from then on, for half a cosine."""
    rate_decay: Suppress[float] = 0.0
    """The part of the learning rate that each step takes away, for half a cosine."""
    alpha_dropout: Suppress[float] = 0.0
    """The rate of alpha dropout after each activation."""
    head_dropout: Suppress[float] = 0.0
    """The rate of dropout before the classifier of the mlp."""
    norm_at: Suppress[int] = 0
    """The one layer of cnn4, counted from 1, that is normalized; 0 for all."""
    nonfinite: Suppress[NonFinite] = "record"
    """What is done about a step that would make something not finite."""


# The flags of the last base come first.
@dataclass(frozen=True)
class Config(Training, Network):
    """A network, an optimizer, and how long one trains the other."""

    def changed(self: AnyConfig, **fields: Any) -> AnyConfig:
        """The same with other values of some fields."""
        return replace(self, **fields)

    def on(self: AnyConfig, shape: Sequence[int]) -> AnyConfig:
        """With the network named that inputs of this shape suggest, if none is."""
        return self if self.model else self.changed(model=network_for(shape))
