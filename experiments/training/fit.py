"""The loop over epochs, and what it records."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, Num

from experiments.data.dataset import Dataset
from experiments.errors import Diverged, UserError
from experiments.training.epoch import steps_per_epoch
from experiments.training.history import Checkpointer, Epoch, History, NoCheckpoints
from experiments.training.nonfinite import copied, first_nonfinite, mean_of_taken
from experiments.training.runners import nothing
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer
from jaxnorm import parameter_count

#: The share of a constant guess's loss and of its error above which nothing was learned.
LEARNED = 0.98
#: How the outcome of a run begins that was stopped.
DIVERGED = "diverged"
#: Of a run whose loss and accuracy are no better than those of a constant guess.
AT_CHANCE = "at chance"


Rows = Num[Array, "rows *shape"] | Num[np.ndarray, "rows *shape"]
#: The rows of a split, and their labels.
Split = tuple[Array, Array]


class Run(NamedTuple):
    """One method trained under one seed.

    Attributes:
        method: its name.
        seed: of the split, the initialization, the batches and the noise.
        curve: one entry an epoch.
        step_ms: milliseconds per step, compilation and evaluation excluded; the median over epochs.
        parameters: the number of trainable numbers.
        state: the final state; None where the run is kept without it.
        outcome: empty for a run that trained, else in a few words what went wrong.
        changes: the settings that it has for itself alone, as (field, value).
        scores: fractions that were measured of the trained network besides, by name.
    """

    method: str
    seed: int
    curve: list[Epoch]
    step_ms: float
    parameters: int
    state: TrainState | None
    outcome: str = ""
    changes: tuple[tuple[str, float], ...] = ()
    # Nobody writes into it; a view that forbids it cannot be sent to another process.
    scores: Mapping[str, float] = {}

    @property
    def trained(self) -> TrainState:
        """The final state of a run that has just ended; one that is kept has none."""
        assert self.state is not None, "a kept run has no state: train it again"
        return self.state

    @property
    def diverged(self) -> bool:
        """Whether it met a number that is not finite."""
        return self.outcome.startswith(DIVERGED)


def fit(
    trainer: Trainer,
    dataset: Dataset,
    seed: int,
    report: Callable[[Epoch], None] = lambda entry: None,
    checkpointer: Checkpointer = NoCheckpoints(),  # noqa: B008
) -> Run:
    """Trains a method under a seed.

    What the host does with an epoch's results, reporting and saving, it does while the device is at
    the next epoch. Only whether to go on is decided in between.

    Args:
        trainer: of the method, for the dataset's shapes.
        dataset: the two splits.
        seed: 0 to 2^32 - 1.
        report: called with each epoch's entry.
        checkpointer: decides where the run starts, sees the state after each epoch, may end it.

    Raises:
        Diverged: if the settings say so, with the step and the layer, when something is not finite.
    """
    splits: tuple[Split, Split] = trainer.placement.replicate((dataset[:2], dataset[2:4]))
    train, test = splits
    state, history = checkpointer.begin(start(trainer, seed, train[0]))
    trainer.epoch.compile(state, *train)
    steps = steps_per_epoch(dataset.train_rows, trainer.config.batch_size)
    skipped = int(state.skipped)
    for entry in history.curve:
        report(entry)
    stops = trainer.config.nonfinite == "stop"
    # What is saved, or searched for what stops an epoch.
    kept, record = copied(state), nothing
    for number in range(len(history.curve) + 1, trainer.config.epochs + 1):
        began = time.perf_counter()
        state, trained = trainer.epoch(state, *train, meanwhile=record)
        jax.block_until_ready(trained)
        seconds = time.perf_counter() - began
        watched = trainer.watch(state, trained)
        found = trained, trainer.evaluate(state, *test), watched[1:], state.skipped
        trained, tested, (finite, *seen), total = jax.device_get(found)
        if stops and not finite:
            record()
            where = where_diverged(trainer, kept, train, number, steps)
            raise Diverged(where, history.curve, step_ms(history, steps))
        kept = watched.kept
        left_out, skipped = int(total) - skipped, int(total)
        *means, gradient = (mean_of_taken(mean, left_out, steps) for mean in trained)
        entry = Epoch(number, *map(float, (*means, *tested, gradient, *seen)))
        history = history.after(entry, seconds)
        signal = checkpointer.signal()
        record = partial(_record, report, checkpointer, kept, history, signal)
        if signal:
            break
    record()
    curve, parameters = list(history.curve), parameter_count(state.params)
    said = outcome(curve[-1], dataset.y_train)
    return Run(trainer.method.name, seed, curve, step_ms(history, steps), parameters, state, said)


def step_ms(history: History, steps: int) -> float:
    """Milliseconds per step, the median over epochs; NaN before the first."""
    return 1e3 * statistics.median(history.seconds) / steps if history.seconds else math.nan


def outcome(last: Epoch, labels: Int[np.ndarray, "rows *positions"]) -> str:
    """What went wrong, if the last epoch shows it: compared with a constant guess.

    A loss near the guess's is not enough: small logits have it, and may be right all the same.
    """
    shares = np.unique_counts(np.asarray(labels)).counts / np.size(labels)
    said = outcome_beside(last.train_loss, float(-(shares * np.log(shares)).sum()))
    error = 1 - max(last.train_accuracy, last.test_accuracy)
    learned = error <= LEARNED * (1 - float(shares.max()))
    return "" if said == AT_CHANCE and learned else said


def outcome_beside(loss: float, guess: float) -> str:
    """The same by the training loss alone, given the loss of a constant guess."""
    if not math.isfinite(loss):
        return DIVERGED
    return AT_CHANCE if loss > LEARNED * guess else ""


def _record(
    report: Callable[[Epoch], None],
    checkpointer: Checkpointer,
    state: TrainState,
    history: History,
    signal: int,
) -> None:
    """What the host does with an epoch's results."""
    report(history.curve[-1])
    checkpointer.after_epoch(state, history, signal)


def where_diverged(
    trainer: Trainer, before: TrainState, train: Split, number: int, steps: int
) -> str:
    """Runs an epoch again, up to the first step that is not finite, and says where that is."""
    state, _ = trainer.careful_epoch(before, *train)
    index = steps - max(1, int(state.skipped))
    state = state._replace(epoch=state.epoch - 1)
    batch = trainer.epoch.batch(state, *train, index)
    where = first_nonfinite(trainer.method, trainer.context, state, batch)
    return f"not finite at step {index + 1} of epoch {number}, {where}"


def start(trainer: Trainer, seed: int, X: Rows) -> TrainState:
    """The initial state of a run."""
    try:
        return trainer.init(np.uint32(seed), X)
    except ValueError as error:
        # The library says in one line which parameter cannot be constrained, and why.
        raise UserError(f"{trainer.method.name} does not fit this network: {error}") from error
