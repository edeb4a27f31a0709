"""The runs of a comparison: each method under each seed, finished ones kept."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax

from experiments.checkpoints.config import config_of
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.errors import Diverged
from experiments.jobs import finished
from experiments.kept import RUNS, read_runs, write_runs
from experiments.methods.flags import adjusted
from experiments.methods.method import Method
from experiments.methods.table import METHODS
from experiments.progress import Advance, progress
from experiments.reports.csv import write_curves, write_results
from experiments.reports.tensorboard import EventFiles
from experiments.settings import Settings
from experiments.training.devices import make_placement
from experiments.training.fit import DIVERGED, Run, fit, start
from experiments.training.history import Epoch
from experiments.training.processes import writes
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm import parameter_count

#: Flags that say which runs there are, not what each of them is.
_WHICH = {"methods", "seeds", "jobs"}


def ignore(what: str) -> None:
    """Progress that nobody sees."""


class Comparison:
    """Trains methods by name; every seed of one shares its compiled functions.

    Args:
        settings: what the methods share.

    Attributes:
        advance: is told of each epoch.
    """

    def __init__(self, settings: Settings):
        self.settings = settings
        self.advance: Advance = ignore
        self.config = settings.changed(nonfinite="stop")
        self._events = EventFiles(settings.tensorboard if writes() else None)
        self._placement = make_placement(settings.parallel, settings.mesh)
        self.dataset = cache(partial(load, settings.dataset, train_rows=settings.train_rows))
        self._trainers: dict[tuple[object, ...], Trainer] = {}

    def trainer(self, name: str, dataset: Dataset) -> Trainer:
        """The method of that name on data of that shape."""
        key = (name, dataset.X_train.shape, dataset.num_classes)
        if key not in self._trainers:
            method = adjusted(METHODS[name], self.settings)
            self._trainers[key] = make_trainer(method, self.config, dataset, self._placement)
        return self._trainers[key]

    def __call__(self, method: str, seed: int) -> Run:
        """The run, without its final state; of one that diverges the epochs before, and NaNs."""
        dataset = self.dataset(seed)
        with self._events.of(method, seed) as log:
            report = reporter(f"{method}, seed {seed}", self.config.epochs, self.advance, log)
            run = _fit_or_diverge(self.trainer(method, dataset), dataset, seed, report)
        return run._replace(state=None)


def run_all(
    comparison: Comparison,
    methods: Sequence[Method],
    seeds: Sequence[int],
    out: Path,
    jobs: int = 1,
    resume: bool = False,
) -> list[Run]:
    """Trains every method under every seed, and rewrites the files of results after each run.

    Of several processes over hosts all train, and one writes and shows progress.

    Args:
        comparison: what the methods share.
        methods: the methods.
        seeds: of the splits, the initializations, the batches and the noise.
        out: the folder for runs.json, results.csv and curves.csv.
        jobs: how many runs at once.
        resume: whether finished runs of an earlier call with the same settings are kept.

    Raises:
        UserError: for whatever does not fit, before any work is done; for kept runs of other
            settings.
    """
    tasks = [(method.name, seed) for method in methods for seed in seeds]
    dataset, epochs = comparison.dataset(seeds[0]), comparison.config.epochs
    for method in methods:
        comparison.trainer(method.name, dataset)
    protocol = _protocol_of(comparison.settings, dataset)
    # Several hosts need not see the same files; then all train everything.
    done = read_runs(out / RUNS, protocol) if resume and jax.process_count() == 1 else {}
    missing = [task for task in tasks if task not in done]
    with progress(len(missing) * epochs, writes()) as (advance, say):
        if len(missing) < len(tasks):
            say(f"{len(tasks) - len(missing)} of {len(tasks)} runs are kept from an earlier call.")
        comparison.advance = advance
        make = partial(Comparison, comparison.settings) if jobs > 1 else lambda: comparison
        for (method, seed), run in finished(missing, make, jobs):
            done[method, seed] = run
            say(summary(run))
            for _ in range(epochs if jobs > 1 else 0):
                advance(f"{method}, seed {seed}")
            if writes():
                write_runs(out / RUNS, protocol, [(run.method, run) for run in done.values()])
                _write(out, [done[task] for task in tasks if task in done])
    runs = [done[task] for task in tasks]
    if writes():
        _write(out, runs)
    return runs


def _protocol_of(settings: Settings, dataset: Dataset) -> dict[str, Any]:
    config = config_of(settings, *dataset[:4])
    return {name: value for name, value in config.items() if name not in _WHICH}


def _write(out: Path, runs: Sequence[Run]) -> None:
    write_results(out / "results.csv", runs)
    write_curves(out / "curves.csv", runs)


def _fit_or_diverge(
    trainer: Trainer, dataset: Dataset, seed: int, report: Callable[[Epoch], None]
) -> Run:
    try:
        return fit(trainer, dataset, seed, report)
    except Diverged as error:
        lost = Epoch(len(error.curve) + 1, *[math.nan] * (len(Epoch._fields) - 1))
        for _ in range(trainer.config.epochs - len(error.curve)):
            report(lost)
        parameters = parameter_count(start(trainer, seed, dataset.X_train).params)
        outcome = f"{DIVERGED}, {error}"
        curve = [*error.curve, lost]
        return Run(trainer.method.name, seed, curve, error.step_ms, parameters, None, outcome)


def reporter(
    name: str, epochs: int, advance: Advance, log: Callable[[Epoch], None]
) -> Callable[[Epoch], None]:
    """Logs each epoch of the run of that name, and moves the progress bar."""

    def report(entry: Epoch) -> None:
        log(entry)
        advance(f"{name}, epoch {entry.epoch} of {epochs}")

    return report


def summary(run: Run) -> str:
    """A finished run in a line."""
    last = run.curve[-1]
    if run.diverged:
        return f"{run.method}, seed {run.seed}: {run.outcome}"
    return (
        f"{run.method}, seed {run.seed}: test accuracy {100 * last.test_accuracy:.2f}%, "
        f"training loss {last.train_loss:.4g}, {run.step_ms:.2f} ms a step"
    )
