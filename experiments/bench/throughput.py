"""Steps a second of an epoch as `train` runs it, and what of that time is the host's alone."""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.bench.step import CLASSES, config_of, random_batch
from experiments.bench.table import Measured
from experiments.bench.timing import Call, Timed, costs_in_turn, milliseconds
from experiments.checkpoints.keeper import keeping
from experiments.checkpoints.settings import CheckpointSettings
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.methods.table import find_methods
from experiments.training.epoch import steps_per_epoch
from experiments.training.fit import fit, start
from experiments.training.state import Batch
from experiments.training.trainer import Trainer, make_trainer

#: What a call of each way runs, and the steps of an epoch on random images.
EPOCHS, STEPS = 3, 8
LOOP, DEVICE, FIT = "loop", "epoch and evaluation", "fit"
COLUMNS = ("method", "way", "steps_per_s", "base", "ratio", "ratio_low", "ratio_high")


def bench_throughput(flags: Any) -> Measured:
    """Steps a second of `train`'s epoch against a Python loop of the step, and of all of `fit`."""
    data = _data(flags.model, flags.batch_size)
    config = config_of(flags).changed(epochs=EPOCHS, nonfinite="stop")
    steps = steps_per_epoch(data.train_rows, flags.batch_size)
    rows: list[tuple[Any, ...]] = []
    for method in find_methods(flags.methods):
        trainer = make_trainer(method, config, data)
        subjects = ways(trainer, data)
        for way, cost in costs_in_turn(subjects, flags.repeats).items():
            rate = 1e3 * EPOCHS * steps / cost.ms
            rows.append((method.name, way, rate, subjects[way].base, *cost.ratios))
    return Measured(
        COLUMNS,
        rows,
        f"{EPOCHS} epochs of {steps} steps in each of {flags.repeats} rounds; "
        f"train's epoch is {trainer.epoch.title} here.",
        f"throughput_{flags.model}",
    )


def _data(model: str, batch_size: int) -> Dataset:
    """The digits, as `compare` has them, for the mlp; random images for the others."""
    if model == "mlp":
        return load("digits", 0)
    X, y = map(np.asarray, random_batch((STEPS + 1) * batch_size)[:2])
    few, rest = slice(batch_size), slice(batch_size, None)
    return Dataset(X[rest], y[rest], X[few], y[few], "random images", CLASSES)


def ways(trainer: Trainer, data: Dataset) -> dict[str, Timed]:
    """What to time: each call trains for ``EPOCHS`` epochs from the same start."""
    loop, epochs = _loop(trainer, data), _epochs(trainer, data)
    milliseconds(epochs)
    half = 1e-3 * milliseconds(epochs) / EPOCHS / 2

    def waiting() -> object:
        """With half an epoch's time to wait after each; the last has nothing to hide behind."""
        return fit(trainer, data, 0, report=lambda entry: time.sleep(half)).state

    return {
        LOOP: Timed(loop, LOOP),
        "loop (control)": Timed(loop, LOOP),
        "epoch": Timed(epochs, LOOP),
        DEVICE: Timed(partial(epochs, evaluates=True), DEVICE),
        FIT: Timed(lambda: fit(trainer, data, 0).state, DEVICE),
        "fit, saving": Timed(partial(_saving, trainer, data), DEVICE),
        "fit, waiting": Timed(waiting, FIT),
    }


def _loop(trainer: Trainer, data: Dataset) -> Call:
    step = jax.jit(trainer.step, donate_argnums=0)
    X = jax.device_put(data.X_train)

    def loop() -> object:
        """As one would write it: batches are cut on the host, metrics are fetched in the end."""
        state, collected = start(trainer, 0, X), []
        for batch in _batches(data, trainer.config.batch_size):
            state, metrics = step(state, batch)
            collected.append(metrics)
        return state, jax.device_get(collected)

    return loop


def _epochs(trainer: Trainer, data: Dataset) -> Callable[..., object]:
    train, test = jax.device_put((data[:2], data[2:4]))

    def epochs(evaluates: bool = False) -> object:
        """Nothing is waited for before the end."""
        state, collected = start(trainer, 0, train[0]), []
        for _ in range(EPOCHS):
            state, metrics = trainer.epoch(state, *train)
            collected.append((metrics, trainer.evaluate(state, *test) if evaluates else ()))
        return state, jax.device_get(collected)

    return epochs


def _saving(trainer: Trainer, data: Dataset) -> object:
    """With a checkpoint an epoch, the last of which is waited for."""
    with (
        tempfile.TemporaryDirectory() as folder,
        keeping(CheckpointSettings(folder), {}, EPOCHS) as keeper,
    ):
        return fit(trainer, data, 0, checkpointer=keeper).state


def _batches(data: Dataset, size: int) -> Iterator[Batch]:
    random, keys = np.random.default_rng(0), jax.random.split(jax.random.key(0), size)
    on_host: Any = data[:2]
    X, y = on_host
    for _ in range(EPOCHS):
        order = random.permutation(data.train_rows)
        for first in range(0, data.train_rows - size + 1, size):
            rows = order[first : first + size]
            yield Batch(X[rows], y[rows], keys)
