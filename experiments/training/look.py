"""A look at a network before it trains: how far its signal and its gradient get."""

import jax
from jaxtyping import Array, Float, PyTree

from experiments.data.dataset import Dataset
from experiments.training.fit import start
from experiments.training.step import score
from experiments.training.trainer import Trainer
from jaxnorm import propagation_findings

#: The number of training rows that the look takes.
ROWS = 64


def initial_signal(trainer: Trainer, dataset: Dataset, seed: int) -> str:
    """Returns what is off with a run's network before its first step, in one line.

    The network is looked at in training mode, on one device. The line has the findings of
    `jaxnorm.propagation_findings`. It is empty for a network with nothing off, and for one that
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
        layout = trainer.context.kernels
        findings = propagation_findings(apply, weights, X, loss=loss, layout=layout)
    except ValueError:
        return ""
    return f"{'; '.join(map(str, findings))}." if findings else ""
