"""The flags that every command which trains has."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from experiments._errors import UserError
from experiments.data import BUNDLED
from experiments.methods import OptimizerSettings
from experiments.models import ACTIVATIONS, MODELS, ModelSettings
from experiments.training import TrainingSettings


@dataclass(frozen=True)
class Settings:
    """What is trained, and how; the same for every method.

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
    model: Annotated[str, arg(help=f"The network: {', '.join(MODELS)}.")] = "mlp"
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
    channels: int = 64
    """The channels of cnn9's first stage; the later ones have twice and four times as many."""
    epochs: int = 30
    """The passes over the training rows."""
    batch_size: int = 64
    """The rows of one step. What is left of an epoch after whole batches sits it out."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """SGD with momentum 0.9, or Adam; adam wants a --learning-rate near 0.001."""
    learning_rate: float = OptimizerSettings().learning_rate
    """The initial learning rate, for all methods; half a cosine takes it to 0."""
    weight_decay: float = OptimizerSettings().weight_decay
    """Weight decay on kernels (decoupled with adam); scales and biases have none."""
    noise: float | None = None
    """The noise's standard deviation, in the methods that inject noise, in place of their own."""
    constrain_head: bool = False
    """Also constrain the classifier's kernel, which methods leave free otherwise."""
    augment: bool = False
    """Shift images by up to an eighth of their side and mirror them, anew in each epoch."""

    def training(self) -> TrainingSettings:
        """The settings as training takes them; raises UserError for numbers out of range."""
        for name, least in LEAST.items():
            if not getattr(self, name) >= least:
                raise _too_small(name, getattr(self, name), f"{least} or more")
        if not 0 < self.learning_rate < float("inf"):
            raise _too_small("learning_rate", self.learning_rate, "a positive number")
        if self.noise is not None and not self.noise >= 0:
            raise _too_small("noise", self.noise, "0 or more")
        return TrainingSettings(
            ModelSettings(self.model, self.activation, self.depth, self.width, self.channels),
            OptimizerSettings(self.optimizer, self.learning_rate, self.weight_decay, self.noise),
            self.epochs,
            self.batch_size,
            self.augment,
            self.constrain_head,
        )


#: The smallest values that make sense.
LEAST = {"depth": 1, "width": 1, "channels": 1, "epochs": 1, "batch_size": 1, "weight_decay": 0}


def _too_small(name: str, value: object, wanted: str) -> UserError:
    return UserError(f"--{name.replace('_', '-')} is {value}; wanted {wanted}.")
