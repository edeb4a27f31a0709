"""A look at a network before it trains: how far its signal and its gradient get."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float, Int, Num, PyTree

from experiments.data.dataset import Dataset
from experiments.training.evaluate import evaluated_weights
from experiments.training.fit import start
from experiments.training.state import TrainState
from experiments.training.step import score
from experiments.training.trainer import Trainer
from jaxnorm import propagation_findings, read

#: The number of training rows that the look takes.
ROWS = 64


class View(NamedTuple):
    """A network and training rows on one device.

    Attributes:
        apply: ``(weights, X, train=True) -> logits``.
        weights: the weights that the network computes with, without noise.
        X: the rows.
        y: their labels.
    """

    apply: Callable[..., Array]
    weights: PyTree
    X: Num[Array, "rows *shape"]
    y: Int[Array, "rows *positions"]

    def loss(self, logits: Array) -> Float[Array, ""]:
        """Returns the mean loss over the rows."""
        return score(logits, self.y).loss.mean()


def view_of(trainer: Trainer, state: TrainState, dataset: Dataset) -> View:
    """Returns the network of a state with the first training rows."""
    X, y = trainer.placement.replicate(dataset[:2])
    arrays = evaluated_weights(trainer.method, state), state.model_state, X[:ROWS], y[:ROWS]
    weights, model_state, X, y = jax.device_put(arrays, jax.devices()[0])

    def apply(weights: PyTree, X: Array, train: Any = True) -> Array:
        return trainer.context.functional.apply(weights, model_state, X, train=train)[0]

    return View(apply, weights, X, y)


def initial_signal(trainer: Trainer, dataset: Dataset, seed: int) -> str:
    """Returns what is off with a run's network before its first step, in one line.

    The network is looked at in training mode, on one device. The line has the findings of
    `jaxnorm.propagation_findings`. It is empty for a network with nothing off, and for one that
    cannot be measured, with kernels in a loop, for example.
    """
    X = trainer.placement.replicate(dataset.X_train)
    view = view_of(trainer, start(trainer, seed, X), dataset)
    try:
        findings = propagation_findings(
            read(view.apply, view.weights, view.X), loss=view.loss, layout=trainer.context.kernels
        )
    except ValueError:
        return ""
    return f"{'; '.join(map(str, findings))}." if findings else ""
