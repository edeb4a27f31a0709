"""Benchmark of picture input: rows per second of the input alone, the step alone, and both."""

import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from experiments.bench.resident import with_memory
from experiments.bench.step import config_of
from experiments.bench.table import Measurements
from experiments.data.dataset import Dataset, Labels, Rows
from experiments.data.pictures import load_pictures
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.methods.table import find_methods
from experiments.runs.timing import Call, in_turn, milliseconds
from experiments.training.epoch import Runner
from experiments.training.fit import start
from experiments.training.nonfinite import copied
from experiments.training.stream import Streamed
from experiments.training.trainer import Trainer, make_trainer

COLUMNS = (
    *("source", "method", "way", "rows_per_s", "rows_per_s_low", "rows_per_s_high"),
    *("core_ms_per_row", "held_mib", "peak_mib"),
)


class Subset:
    """A subset of the rows of a stream's source.

    Args:
        source: all rows.
        rows: the indices of the subset's rows.
    """

    def __init__(self, source: Any, rows: Int[np.ndarray, " some"]):
        self._source, self._rows = source, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Int[np.ndarray, " rows"]) -> tuple[Rows, Labels]:
        """Returns the rows of those indices within the subset."""
        read: tuple[Rows, Labels] = self._source[self._rows[rows]]
        return read

    def cropped(self, seed: int, epoch: int) -> "Subset":
        """Returns the subset with random crops of the epoch."""
        return Subset(self._source.cropped(seed, epoch), self._rows)


def bench_input(flags: Any) -> Measurements:
    """Rows per second of pictures read while training: input alone, step alone, and both."""
    if flags.data_dir is None:
        raise UserError(
            "bench input needs --data-dir, a folder train|test/CLASS/*.jpg or that of a TensorFlow "
            "dataset."
        )
    data = load_pictures(flags.data_dir, flags.side)
    methods = find_methods(flags.methods)
    rows = [
        (data.name, each.name, *row) for each in methods for row in _measured(data, each, flags)
    ]
    return Measurements(
        COLUMNS,
        rows,
        f"Medians over {flags.repeats} rounds of {flags.steps} steps of {flags.batch_size} "
        f"squares of {flags.side} pixels [quartiles]; core time is the process's, of all its "
        "threads; memory is what the process holds.",
    )


def _measured(data: Dataset, method: Method, flags: Any) -> Iterator[tuple[object, ...]]:
    """Yields a row per way: medians of times over rounds, and the largest memory."""
    count = flags.steps * flags.batch_size
    data = _with_rows(data, count)
    config = config_of(flags).changed(epochs=1, augment="resized-crop-flip")
    trainer = make_trainer(method, config, data)
    calls = ways(trainer, data, flags.steps)
    for way, resources in in_turn(calls, flags.repeats, _resources).items():
        times, core, held, peak = np.transpose(resources)
        rates = np.quantile(1e3 * count / times, (0.5, 0.25, 0.75)).tolist()
        core_ms = float(np.median(core)) / count
        yield way, *rates, core_ms, f"{held.max():.0f}", f"{peak.max():.0f}"


def _resources(call: Call) -> tuple[float, float, float, float]:
    """Returns a call's milliseconds, its CPU milliseconds on all cores, and memory in MiB."""
    began = time.process_time()
    elapsed, memory = with_memory(lambda: milliseconds(call))
    return elapsed, 1e3 * (time.process_time() - began), *memory


def _with_rows(data: Dataset, count: int) -> Dataset:
    """Keeps ``count`` training rows, drawn at random."""
    if data.train_rows < count:
        raise UserError(
            f"the steps take {count:,} rows, and {data.name} has {data.train_rows:,} for training; "
            "take fewer --steps, or a smaller --batch-size."
        )
    rows = np.random.default_rng(0).permutation(data.train_rows)[:count]
    return data._replace(stream=data.stream._replace(train=Subset(data.stream.train, rows)))


def ways(trainer: Trainer, data: Dataset, steps: int) -> dict[str, Call]:
    """Returns the calls to time, by name; each is an epoch of ``steps`` from the same state."""
    size = trainer.config.batch_size
    X, y = jax.device_put((data.X_train[:size], data.y_train[:size]))
    stream = data.stream._replace(crops=True)

    def read() -> object:
        """Reads an epoch, and waits for each batch."""
        return [len(jax.block_until_ready(y)) for _, y in stream.batches(0, 0, size)]

    def epoch(run: Runner) -> object:
        return run(copied(begun), X, y)

    batch, begun = next(stream.batches(0, 0, size)), start(trainer, 0, X)
    # A stream that repeats one batch, which is on the device already.
    resident = SimpleNamespace(train=stream.train, batches=lambda *how: iter(steps * [batch]))
    alone = Streamed(trainer.plan, data._replace(stream=resident))
    return {"input": read, "step": partial(epoch, alone), "both": partial(epoch, trainer.epoch)}
