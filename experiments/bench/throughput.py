"""Steps a second of an epoch as `train` runs it, and what of that time is the host's alone."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from experiments.bench.step import CLASSES, config_of, random_batch
from experiments.bench.table import Measured
from experiments.bench.timing import ratio, times_in_turn
from experiments.checkpoints.keeper import keeping
from experiments.checkpoints.settings import CheckpointSettings
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.methods.method import Method
from experiments.methods.table import find_methods
from experiments.training.epoch import steps_per_epoch
from experiments.training.fit import fit, start
from experiments.training.state import Batch
from experiments.training.trainer import Trainer, make_trainer

#: What a call of each way runs, and the steps of an epoch on random images.
EPOCHS, STEPS = 3, 8
LOOP, EPOCH, DEVICE, FIT = "loop", "epoch", "epoch and evaluation", "fit"

#: Each way, and the one whose time its own is divided by.
BASES = {
    LOOP: LOOP,
    "loop (control)": LOOP,
    EPOCH: LOOP,
    DEVICE: DEVICE,
    FIT: DEVICE,
    "fit, saving": DEVICE,
    "fit, waiting": FIT,
}
COLUMNS = ("method", "way", "steps_per_s", "base", "ratio", "ratio_low", "ratio_high")


def bench_throughput(flags: Any) -> Measured:
    """Steps a second of `train`'s epoch against a Python loop of the step, and of all of `fit`."""
    data = _data(flags.model, flags.batch_size)
    config = config_of(flags).changed(epochs=EPOCHS, nonfinite="stop")
    rows: list[tuple[Any, ...]] = []
    for method in find_methods(flags.methods):
        trainer = make_trainer(method, config, data)
        rows += _rows(method, trainer, data, flags.repeats)
    return Measured(
        COLUMNS,
        rows,
        f"{EPOCHS} epochs of {_steps(trainer, data)} steps in each of {flags.repeats} rounds; "
        f"train's epoch is {trainer.epoch.title} here.",
        f"throughput_{flags.model}",
    )


def _data(model: str, batch_size: int) -> Dataset:
    """The digits, as `compare` has them, for the mlp; random images for the others."""
    if model == "mlp":
        return load("digits", 0)
    X, y = map(np.asarray, random_batch((STEPS + 1) * batch_size)[:2])
    few = slice(batch_size)
    rest = slice(batch_size, None)
    return Dataset(X[rest], y[rest], X[few], y[few], "random images", CLASSES)


def ways(trainer: Trainer, data: Dataset) -> dict[str, Callable[[], object]]:
    """What to time: each call trains for ``EPOCHS`` epochs from the same start."""
    loop, epochs = _loop(trainer, data), _epochs(trainer, data)
    run = (loop, loop, lambda: epochs(False), lambda: epochs(True), *_fits(trainer, data, epochs))
    return dict(zip(BASES, run, strict=True))


def _loop(trainer: Trainer, data: Dataset) -> Callable[[], object]:
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


def _epochs(trainer: Trainer, data: Dataset) -> Callable[[bool], object]:
    train, test = jax.device_put((data[:2], data[2:4]))

    def epochs(evaluates: bool) -> object:
        """Nothing is waited for before the end."""
        state, collected = start(trainer, 0, train[0]), []
        for _ in range(EPOCHS):
            state, metrics = trainer.epoch(state, *train)
            collected.append((metrics, trainer.evaluate(state, *test) if evaluates else ()))
        return state, jax.device_get(collected)

    return epochs


def _fits(
    trainer: Trainer, data: Dataset, epochs: Callable[[bool], object]
) -> tuple[Callable[[], object], ...]:
    jax.block_until_ready(epochs(False))
    began = time.perf_counter()
    jax.block_until_ready(epochs(False))
    half = (time.perf_counter() - began) / EPOCHS / 2

    def saving() -> object:
        """With a checkpoint an epoch, the last of which is waited for."""
        with (
            tempfile.TemporaryDirectory() as folder,
            keeping(CheckpointSettings(folder), {}, EPOCHS) as keeper,
        ):
            return fit(trainer, data, 0, checkpointer=keeper).state

    def waiting() -> object:
        """With half an epoch's time to wait after each; the last has nothing to hide behind."""
        return fit(trainer, data, 0, report=lambda entry: time.sleep(half)).state

    return lambda: fit(trainer, data, 0).state, saving, waiting


def _batches(data: Dataset, size: int) -> Iterator[Batch]:
    random, keys = np.random.default_rng(0), jax.random.split(jax.random.key(0), size)
    on_host: Any = data[:2]
    X, y = on_host
    for _ in range(EPOCHS):
        order = random.permutation(data.train_rows)
        for first in range(0, data.train_rows - size + 1, size):
            rows = order[first : first + size]
            yield Batch(X[rows], y[rows], keys)


def _rows(method: Method, trainer: Trainer, data: Dataset, repeats: int) -> list[tuple[Any, ...]]:
    times = times_in_turn(ways(trainer, data), repeats)
    steps = EPOCHS * _steps(trainer, data)
    rates = {way: 1e3 * steps / statistics.median(each) for way, each in times.items()}
    return [
        (method.name, way, rates[way], base, *ratio(times[way], times[base]))
        for way, base in BASES.items()
    ]


def _steps(trainer: Trainer, data: Dataset) -> int:
    return steps_per_epoch(data.train_rows, trainer.config.batch_size)
