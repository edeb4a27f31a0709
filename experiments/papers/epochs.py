"""A training with access to the state between its epochs."""

from collections.abc import Iterator

import jax

from experiments.data.dataset import Dataset
from experiments.training.fit import start
from experiments.training.state import StepMetrics, TrainState
from experiments.training.trainer import Trainer


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
        yield state, metrics
