"""The units of figure 1: trained networks, and what is measured of each unit on the test rows."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from experiments.data.dataset import Dataset
from experiments.methods.overrides import Overrides
from experiments.methods.table import METHODS
from experiments.papers.vcl.modes import multimodal
from experiments.papers.vcl.uci_train import Uci
from experiments.training.fit import fit
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm.losses import collect_preactivations
from jaxnorm.statistics import kurtosis


@dataclass(frozen=True)
class Settings(Uci):
    """The protocol of the UCI experiments, as far as the figure leaves it open.

    Attributes:
        units: the units of a layer that are drawn.
    """

    activation: str = "elu"
    depth: int = 4
    units: int = 4


class Measured(NamedTuple):
    """Of a method and a seed: hidden layers of units on the test rows."""

    method: str
    seed: int
    values: list[Float[np.ndarray, "rows units"]]
    kurtosis: list[Float[np.ndarray, " units"]]
    multimodal: list[Bool[np.ndarray, " units"]]
    outcome: str = ""


def measure(settings: Settings, name: str, data: Dataset, seed: int) -> Measured:
    """Trains a network, and reads its hidden pre-activations on the test rows."""
    method = METHODS[name].adjusted(Overrides(sample_size=settings.sample_size))
    trainer = make_trainer(method, settings, data)
    run = fit(trainer, data, seed)
    layers = _preactivations(trainer, run.trained, data.X_test)
    peaks = [np.asarray(kurtosis(jnp.asarray(x), 0)) for x in layers]
    return Measured(name, seed, layers, peaks, [multimodal(x) for x in layers], run.outcome)


def _preactivations(
    trainer: Trainer, state: TrainState, X: Float[np.ndarray, "rows features"]
) -> list[Float[np.ndarray, "rows units"]]:
    def evaluated(params: PyTree, X: Array) -> tuple[Array, PyTree]:
        return trainer.context.functional.apply(params, state.model_state, X, train=False)

    @jax.jit
    def hidden(params: PyTree, X: Array) -> dict[str, Array]:
        return collect_preactivations(evaluated, params, X, layout=trainer.layout)[1]

    layers = hidden(trainer.method.weights(state.params, state.method_state), X)
    # In the order of a network's blocks: a dict that left jit is sorted by name.
    in_order = sorted(layers.items(), key=lambda entry: int(entry[0].split("/")[1]))
    return [np.asarray(layer) for _, layer in in_order]
