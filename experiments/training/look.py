"""A look at a network before it trains: how far its signal and its gradient get."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float, Num, PyTree

from experiments.data.dataset import Dataset
from experiments.training.fit import start
from experiments.training.step import score
from experiments.training.trainer import Trainer
from jaxnorm import Layout, describe_propagation, propagation

#: The number of training rows that the look takes.
ROWS = 64


class Network(NamedTuple):
    """An initial network on some training rows.

    Attributes:
        apply: ``(weights, X) -> logits``.
        weights: what the network computes with.
        X: the rows.
        loss: ``logits -> cross-entropy``.
        layout: all kernels.
    """

    apply: Callable[[PyTree, Array], Array]
    weights: PyTree
    X: Num[Array, "rows *shape"]
    loss: Callable[[Array], Float[Array, ""]]
    layout: Layout

    def signal(self) -> dict[str, Float[Array, ""]]:
        """`jaxnorm.propagation`."""
        return propagation(self.apply, self.weights, self.X, loss=self.loss, layout=self.layout)

    def verdict(self) -> str:
        """Returns what `jaxnorm.describe_propagation` names as off, in one line; empty for nothing.

        Empty, too, for a network that it cannot measure, with kernels in a loop, for example.
        """
        try:
            options: dict[str, Any] = {"loss": self.loss, "layout": self.layout}
            text = describe_propagation(self.apply, self.weights, self.X, **options)
        except ValueError:
            return ""
        kind, _, findings = text.splitlines()[-1].partition("Off: ")
        return "" if kind else findings


def initial_network(trainer: Trainer, dataset: Dataset, seed: int) -> Network:
    """The network of a run before its first step, in training mode, on one device."""
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

    return Network(apply, weights, X, loss, trainer.context.kernels)
