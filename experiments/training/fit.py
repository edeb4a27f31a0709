"""The loop over epochs, and its record."""

import math
import statistics
import time
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Int, Num

from experiments.data.dataset import Dataset
from experiments.training.epoch import WITHIN, Look, nothing, steps_per_epoch
from experiments.training.history import Checkpointer, History, NoCheckpoints
from experiments.training.initial import initial_checksums
from experiments.training.nonfinite import copied, first_nonfinite, mean_of_taken
from experiments.training.run import AT_CHANCE, DIVERGED, Diverged, Epoch, Run
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer
from jaxnorm import parameter_count

#: The share of a constant guess's loss and of its error above which nothing was learned.
LEARNED = 0.98


Rows = Num[Array, "rows *shape"] | Num[np.ndarray, "rows *shape"]
#: The rows of a split, and their labels.
Split = tuple[Array, Array]


def fit(
    trainer: Trainer,
    dataset: Dataset,
    seed: int,
    report: Callable[[Epoch], None] = lambda entry: None,
    checkpointer: Checkpointer = NoCheckpoints(),  # noqa: B008
    look: Look = nothing,
) -> Run:
    """Trains a method under a seed.

    The host reports and saves an epoch's results while the device runs the next epoch. Only the
    decision to go on is made in between.

    Args:
        trainer: the trainer of the method, for the dataset's shapes.
        dataset: the two splits.
        seed: 0 to 2^32 - 1.
        report: called with each epoch's entry.
        checkpointer: gives the initial state, gets the state after each epoch, and may end the run.
        look: called with the initial state, and with one after at most a hundred updates, or after
            the first epoch if that is one compiled loop.

    Raises:
        Diverged: with the step and the layer, if ``nonfinite`` is "stop" and a number not finite.
    """
    splits: tuple[Split, Split] = trainer.placement.replicate((dataset[:2], dataset[2:4]))
    train, test = splits
    first = start(trainer, seed, train[0])
    initial = initial_checksums(first.params)
    state, history = checkpointer.begin(first)
    trainer.epoch.compile(state, *train)
    steps = steps_per_epoch(dataset.train_rows, trainer.config.batch_size)
    skipped = int(state.skipped)
    for entry in history.curve:
        report(entry)
    if not history.curve:
        look(state)
    stops = trainer.config.nonfinite == "stop"
    # The state to save, or to repeat an epoch from.
    kept, record = copied(state), nothing
    for number in range(len(history.curve) + 1, trainer.config.epochs + 1):
        began = time.perf_counter()
        looked = look if number == max(1, WITHIN // steps) else nothing
        state, trained = trainer.epoch(state, *train, meanwhile=record, look=looked)
        jax.block_until_ready(trained)
        seconds = time.perf_counter() - began
        state = trainer.settle(state, *train)
        watched = trainer.watch(state, trained)
        results = trained, trainer.evaluate(state, *test), watched[1:], state.skipped
        trained, tested, (finite, *norms), total = jax.device_get(results)
        if stops and not finite:
            record()
            where = where_diverged(trainer, kept, train, number, steps)
            raise Diverged(where, history.curve, step_ms(history, steps))
        kept = watched.kept
        left_out, skipped = int(total) - skipped, int(total)
        *means, gradient = (mean_of_taken(mean, left_out, steps) for mean in trained)
        entry = Epoch(number, *map(float, (*means, *tested, gradient, *norms)))
        history = history.after(entry, seconds)
        signal = checkpointer.signal()
        record = partial(_record, report, checkpointer, kept, history, signal)
        if signal:
            break
    record()
    curve, parameters = list(history.curve), parameter_count(state.params)
    ending = outcome(curve[-1], dataset.y_train)
    run = Run(trainer.method.name, seed, curve, step_ms(history, steps), parameters, state, ending)
    return run._replace(initial=initial)


def step_ms(history: History, steps: int) -> float:
    """Returns milliseconds per step, the median over epochs; NaN before the first."""
    return 1e3 * statistics.median(history.seconds) / steps if history.seconds else math.nan


def outcome(last: Epoch, labels: Int[np.ndarray, "rows *positions"]) -> str:
    """Returns the failure that the last epoch shows beside a constant guess, or an empty text.

    Small logits have a loss near the guess's and may be right all the same, so accuracy counts too.

    """
    if not math.isfinite(last.test_loss):  # The last update alone may make it so.
        return DIVERGED
    shares = np.unique_counts(np.asarray(labels)).counts / np.size(labels)
    ending = outcome_beside(last.train_loss, float(-(shares * np.log(shares)).sum()))
    error = 1 - max(last.train_accuracy, last.test_accuracy)
    learned = error <= LEARNED * (1 - float(shares.max()))
    return "" if ending == AT_CHANCE and learned else ending


def outcome_beside(loss: float, guess: float) -> str:
    """Returns the failure that the training loss shows beside that of a constant guess."""
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
    """Reports and saves an epoch's results."""
    report(history.curve[-1])
    checkpointer.after_epoch(state, history, signal)


def where_diverged(
    trainer: Trainer, before: TrainState, train: Split, number: int, steps: int
) -> str:
    """Runs an epoch again, up to the first step that is not finite, and names its layer."""
    state, _ = trainer.guarded_epoch(before, *train)
    index = steps - max(1, int(state.skipped))
    state = state._replace(epoch=state.epoch - 1)
    batch = trainer.epoch.batch(state, *train, index)
    where = first_nonfinite(trainer.method, trainer.context, state, batch)
    return f"not finite at step {index + 1} of epoch {number}, {where}"


def start(trainer: Trainer, seed: int, X: Rows) -> TrainState:
    """Returns the initial state of a run."""
    return trainer.init(np.uint32(seed), X)
