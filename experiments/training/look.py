"""A look at a network before it trains: how far its signal and its gradient get."""

import jax
from jaxtyping import Array, Float, PyTree

from experiments.data.dataset import Dataset
from experiments.training.fit import start
from experiments.training.step import score
from experiments.training.trainer import Trainer
from jaxnorm import describe_propagation

#: The number of training rows that the look takes.
ROWS = 64


def initial_signal(trainer: Trainer, dataset: Dataset, seed: int) -> str:
    """Returns what is off with a run's network before its first step, in one line.

    The network is looked at in training mode, on one device. The line is that of
    `jaxnorm.describe_propagation`. It is empty for a network with nothing off, and for one that
    cannot be measured, with kernels in a loop, for example.
    """
    (X, y), device = trainer.placement.replicate(dataset[:2]), jax.devices()[0]
    state = start(trainer, seed, X)
    weights = trainer.method.weights(state.params, state.method_state)
    weights, model_state, X, y = jax.device_put(
        (weights, state.model_state, X[:ROWS], y[:ROWS]), device
    )

    def apply(weights: PyTree, X: Array) -> Array:
        return trainer.context.functional.apply(weights, model_state, X, train=True)[0]

    def loss(logits: Array) -> Float[Array, ""]:
        return score(logits, y).loss.mean()

    try:
        text = describe_propagation(apply, weights, X, loss=loss, layout=trainer.context.kernels)
    except ValueError:
        return ""
    kind, _, findings = text.splitlines()[-1].partition("Off: ")
    return "" if kind else findings
