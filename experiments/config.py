"""The settings of a training, shared by flags, papers, checkpoints and training."""

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

#: The treatment of a step that would make a number not finite. ``record``: the run goes on with it.
#: ``stop``: the run ends, and names the step. ``skip``: the update is left out.
NonFinite = Literal["record", "stop", "skip"]

#: The ways to run a step on several devices.
Parallelism = Literal["jit", "shard_map", "pmap"]

#: Any configuration; not `Self`, because the tests execute annotations.
AnyConfig = TypeVar("AnyConfig", bound="Config")


@dataclass(frozen=True)
class Network:
    """The network to train."""

    model: Annotated[
        str,
        arg(
            help=f"The network: {', '.join(MODELS)}, or FILE.py:NAME, a function of your own "
            "(rngs, shape, classes) -> flax.nnx.Module (see experiments/README.md). If the flag is "
            "left out, the network follows the data: cnn9 for images, dgcnn for point clouds, mlp "
            "for rows of features; --dataset python needs transformer."
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


# The defaults of the optimizer were chosen on the digits' splits 100 to 104, which ``compare`` uses
# only for more than a hundred seeds. At learning rates of 0.1 and more, some methods diverge under
# some seeds.
@dataclass(frozen=True)
class Training:
    """Settings of the training."""

    epochs: Epochs = 10
    """The passes over the training rows."""
    batch_size: Count = 64
    """The number of rows per step. Rows that fill no whole batch are left out of an epoch."""
    optimizer: Literal["sgd", "adam", "muon"] = "sgd"
    """SGD with momentum 0.9, Adam, or Muon on kernels and Adam on other parameters; adam and muon
    need a --learning-rate near 0.001."""
    learning_rate: Annotated[float, Range(0, 3e38, without=0)] = 0.05
    """The initial learning rate, for all methods; half a cosine takes it to 0."""
    weight_decay: Strength = 1e-3
    """Weight decay on kernels (decoupled with adam); scales and biases have none."""
    ghost_groups: Count = 1
    """The number of groups of a batch for batch normalization (ghost batches) and the variance
    constancy loss. With 1, batch normalization uses the whole batch under --parallel jit, on any
    number of devices. Under shard_map and pmap it uses each device's rows, as under jit with as
    many groups as devices. The loss has one group per device."""
    augment: Annotated[
        str,
        arg(
            help=f"The augmentation of training rows in each epoch: {', '.join(AUGMENTATIONS)}. "
            f"{POLICIES}:{POLICIES_FILE} uses its authors' sub-policies."
        ),
    ] = "none"
    accumulate: Count = 1
    """The number of microbatches per step, which run one after the other to save memory."""
    epsilon: Annotated[float | None, Range(0, 10**6, without=0)] = None
    """Train with differential privacy: epsilon of the whole training, at a delta of 1 / (10 rows).
    The gradient of each row is clipped at norm 1, and noise is added to the mean of the gradients.
    Methods in which rows depend on each other, such as batch normalization, cannot be trained so.
    """
    clients: Count | None = None
    """The number of clients of federated averaging. In each epoch every client trains on its own
    rows, which are mostly of two classes. Training goes on from the mean of the clients' weights,
    projected back onto the constraint."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type of weights and activations in training; parameters and statistics are always
    float32."""
    rate_schedule: Suppress[tuple[tuple[float, float], ...]] = ()
    """(fraction of training, factor on the initial rate from then on); empty: half a cosine."""
    rate_decay: Suppress[float] = 0.0
    """The share of the learning rate that each step takes away; 0 for half a cosine."""
    alpha_dropout: Suppress[float] = 0.0
    """The rate of alpha dropout after each activation."""
    head_dropout: Suppress[float] = 0.0
    """The rate of dropout before the classifier of the mlp."""
    norm_at: Suppress[int] = 0
    """The one layer of cnn4, counted from 1, that is normalized; 0 for all."""
    nonfinite: Suppress[NonFinite] = "record"
    """The treatment of a step that would make a number not finite."""


# The flags of the last base come first.
@dataclass(frozen=True)
class Config(Training, Network):
    """A network, an optimizer, and the length of training."""

    def changed(self: AnyConfig, **fields: Any) -> AnyConfig:
        """Returns a copy with other values of some fields."""
        return replace(self, **fields)

    def on(self: AnyConfig, shape: Sequence[int]) -> AnyConfig:
        """Names the network that inputs of this shape suggest, if none is named."""
        return self if self.model else self.changed(model=network_for(shape))
