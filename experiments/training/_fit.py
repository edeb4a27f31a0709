"""The loop over epochs, and what it records."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from experiments._errors import UserError
from experiments.data import Dataset
from experiments.training._epoch import steps_per_epoch
from experiments.training._state import TrainState
from experiments.training._trainer import Trainer
from jaxnorm import parameter_count


class Epoch(NamedTuple):
    """The curves' entry of one epoch.

    Attributes:
        epoch: counted from 1.
        train_loss: the mean over the epoch's steps, as the network was while it trained.
        train_accuracy: likewise; a fraction.
        test_loss: after the epoch, in evaluation mode.
        test_accuracy: likewise; a fraction.
    """

    epoch: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float


class Run(NamedTuple):
    """One method trained under one seed.

    Attributes:
        method: its name.
        seed: of the split, the initialization, the batches and the noise.
        curve: one entry an epoch.
        step_ms: milliseconds a step, compilation and evaluation excluded; the median over epochs.
        parameters: the number of trainable numbers.
        state: the final state.
    """

    method: str
    seed: int
    curve: list[Epoch]
    step_ms: float
    parameters: int
    state: TrainState


def fit(
    trainer: Trainer,
    dataset: Dataset,
    seed: int,
    report: Callable[[Epoch], None] = lambda entry: None,
) -> Run:
    """Trains a method under a seed.

    Args:
        trainer: of the method, for the dataset's shapes.
        dataset: the two splits.
        seed: 0 to 2^32 - 1.
        report: called with each epoch's entry.
    """
    train, test = trainer.settings.placement.replicate((dataset[:2], dataset[2:4]))
    state = start(trainer, seed, train[0])
    trainer.epoch.compile(state, *train)
    curve, seconds = [], []
    for number in range(1, trainer.settings.epochs + 1):
        began = time.perf_counter()
        state, trained = jax.block_until_ready(trainer.epoch(state, *train))
        seconds.append(time.perf_counter() - began)
        measured = jax.device_get((*trained, *trainer.evaluate(state, *test)))
        curve.append(Epoch(number, *map(float, measured)))
        report(curve[-1])
    steps = steps_per_epoch(len(dataset.X_train), trainer.settings.batch_size)
    step_ms = 1e3 * statistics.median(seconds) / steps
    return Run(trainer.recipe.name, seed, curve, step_ms, parameter_count(state.params), state)


def start(trainer: Trainer, seed: int, X: Float[Array, "rows *shape"]) -> TrainState:
    """The initial state of a run."""
    try:
        return trainer.init(np.uint32(seed), X)
    except ValueError as error:
        # The library says in one line which parameter cannot be constrained, and why.
        raise UserError(f"{trainer.recipe.name} does not fit this network: {error}") from error
