"""The flags that every command which trains has."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from experiments.data.augmentations import AUGMENTATIONS, POLICIES
from experiments.data.load import BUNDLED
from experiments.data.published import POLICIES_FILE
from experiments.methods.optimizer import OptimizerSettings
from experiments.methods.table import Overrides
from experiments.models.activations import ACTIVATIONS
from experiments.models.registry import MODELS, ModelSettings
from experiments.ranges import check_ranges
from experiments.training.devices import make_placement
from experiments.training.trainer import TrainingSettings


@dataclass(frozen=True)
class Task:
    """What is trained, on what, and with which optimizer.

    The defaults of the optimizer were chosen on the digits' splits 100 to 104, which ``compare``
    does not use unless asked for more than a hundred seeds: at a learning rate of 0.1 and more,
    some methods diverge under some seeds.
    """

    dataset: Annotated[
        str,
        arg(
            help=f"What to train on: {', '.join(BUNDLED)} (bundled), FILE.npz, or a folder or tar "
            "of images train|test/CLASS/*.{jpg,png}. See the command datasets."
        ),
    ] = "digits"
    model: Annotated[
        str,
        arg(
            help=f"The network: {', '.join(MODELS)}. Left out, it follows the data: cnn9 for "
            "images, dgcnn for point clouds, mlp for rows of features."
        ),
    ] = ""
    activation: Annotated[
        str,
        arg(
            help="The activation, for methods that have none of their own: "
            f"{', '.join(ACTIVATIONS)}."
        ),
    ] = "relu"
    depth: int = 3
    """The hidden layers of the mlp."""
    width: int = 256
    """The units of each hidden layer of the mlp."""
    channels: int = 16
    """The channels of a convolutional network's first stage, 64 in the papers; the later ones of
    cnn9 have twice and four times as many."""
    train_rows: int | None = None
    """Train on so many of the training rows, the same ones under every seed; all if left out."""
    epochs: int = 10
    """The passes over the training rows."""
    batch_size: int = 64
    """The rows of one step. What is left of an epoch after whole batches sits it out."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """SGD with momentum 0.9, or Adam; adam wants a --learning-rate near 0.001."""
    learning_rate: float = OptimizerSettings().learning_rate
    """The initial learning rate, for all methods; half a cosine takes it to 0."""
    weight_decay: float = OptimizerSettings().weight_decay
    """Weight decay on kernels (decoupled with adam); scales and biases have none."""
    ghost_groups: int = 1
    """The parts of a batch that batch normalization (ghost batches) and the variance constancy loss
    see apart. With 1, batch normalization sees the whole batch under --parallel jit, on any number
    of devices, and each device's rows under shard_map and pmap, as jit does with as many groups as
    devices; the loss has a part on each device."""


# The flags of the last base come first.
@dataclass(frozen=True)
class Settings(Overrides, Task):
    """What is trained, and how; the same for every method."""

    constrain_head: bool = False
    """Also constrain the classifier's kernel, which methods leave free otherwise."""
    augment: Annotated[
        str,
        arg(
            help=f"How training rows are changed, anew in each epoch: {', '.join(AUGMENTATIONS)}. "
            f"{POLICIES}:{POLICIES_FILE} takes its authors' sub-policies."
        ),
    ] = "none"
    parallel: Literal["jit", "shard_map", "pmap"] = "jit"
    """How a step runs on several devices: by the compiler, or on each one's rows (pmap: legacy)."""
    mesh: str = ""
    """The devices by axis, as data=4,model=2: rows over data, units over model; else all data."""
    accumulate: int = 1
    """The parts of a batch that go through the network one after the other, to save memory."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of weights and activations in training; parameters and statistics are always float32."""
    coordinator: str = ""
    """HOST:PORT of process 0 of several; needless on SLURM and TPU pods (or say auto)."""
    processes: int | None = None
    """The number of processes, with --coordinator."""
    process_id: int | None = None
    """Which of them this is, from 0; process 0 writes the files."""

    def training(self) -> TrainingSettings:
        """The settings as training takes them; raises UserError for numbers out of range."""
        check_ranges(self)
        return TrainingSettings(
            ModelSettings(
                self.model,
                self.activation,
                self.depth,
                self.width,
                self.channels,
                self.ghost_groups,
            ),
            OptimizerSettings(self.optimizer, self.learning_rate, self.weight_decay),
            self.epochs,
            self.batch_size,
            self.augment,
            self.constrain_head,
            make_placement(self.parallel, self.mesh),
            self.accumulate,
            self.dtype,
        )
