"""States of a training between its epochs, and their pre-activations."""

from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from experiments.data.dataset import Dataset
from experiments.training.evaluate import evaluated_weights
from experiments.training.fit import start
from experiments.training.state import StepMetrics, TrainState
from experiments.training.trainer import Trainer
from jaxnorm import collect_preactivations, read


def epochs(
    trainer: Trainer, data: Dataset, seed: int, state: TrainState | None = None
) -> Iterator[tuple[TrainState, StepMetrics | None]]:
    """Yields the initial state, then the state after each epoch with the epoch's mean metrics.

    The next epoch consumes the state: measure it before going on.

    Args:
        trainer: the trainer of the method.
        data: the two splits.
        seed: the seed of the run.
        state: the initial state; None for the trainer's own.
    """
    X, y = jax.device_put(data[:2])
    state = start(trainer, seed, X) if state is None else state
    yield state, None
    for _ in range(trainer.config.epochs):
        state, metrics = trainer.epoch(state, X, y)
        state = trainer.settle(state, X, y)
        yield state, metrics


def preactivations(
    trainer: Trainer, state: TrainState, X: Float[Array | np.ndarray, "rows *shape"]
) -> list[Float[Array, "rows units"]]:
    """Returns the pre-activations of each hidden layer in evaluation, from the first layer on."""

    def evaluated(params: PyTree, X: Array) -> tuple[Array, PyTree]:
        return trainer.context.functional.apply(params, state.model_state, X, train=False)

    @jax.jit
    def hidden(params: PyTree, X: Array) -> dict[str, Array]:
        return collect_preactivations(read(evaluated, params, X), layout=trainer.layout)[1]

    layers = hidden(evaluated_weights(trainer.method, state), X)
    # In the order of the network's blocks, because a dict that left jit is sorted by name.
    names = (name for name in layers if name.startswith("blocks/"))
    return [layers[name] for name in sorted(names, key=lambda name: int(name.split("/")[1]))]
