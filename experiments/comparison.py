"""The runs of a comparison: each variant of a method under its seed, finished ones kept."""

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
from experiments.methods.table import METHODS
from experiments.progress import Advance, progress
from experiments.reports.tensorboard import EventFiles
from experiments.settings import Settings
from experiments.training.devices import make_placement
from experiments.training.fit import DIVERGED, Run, fit, start
from experiments.training.groups import as_groups_of_jit
from experiments.training.history import Epoch
from experiments.training.processes import writes
from experiments.training.trainer import Trainer, make_trainer
from experiments.variant import Variant
from jaxnorm import parameter_count

#: Flags that say which runs there are, not what each of them is.
_WHICH = {"methods", "seeds", "jobs", "tune", "tune_epochs"}


#: What loads the dataset of a seed, and what makes another of it.
Load = Callable[[int], Dataset]
Made = Callable[[Load, int], Dataset]


def ignore(what: object) -> None:
    """What nobody sees."""


def loader(settings: Settings) -> Load:
    """What loads the dataset of a seed."""
    train_rows, test_rows = settings.train_rows, settings.test_rows
    return partial(load, settings.dataset, train_rows=train_rows, test_rows=test_rows)


class Comparison:
    """Trains methods by name; every seed of a variant shares its compiled functions.

    Args:
        settings: what the methods share.
        made: ``(load, seed) -> dataset``, of what loads the dataset of a seed; None for that
            dataset itself.
        load: what loads it, and keeps it; None for what the settings name.

    Attributes:
        advance: is told of each epoch.
        kept: how many of the runs an earlier call finished.
    """

    def __init__(self, settings: Settings, made: Made | None = None, load: Load | None = None):
        self.settings, self.made = settings, made
        self.advance: Advance = ignore
        self.kept = 0
        self.config = settings.changed(nonfinite="stop")
        self._events = EventFiles(settings.tensorboard if writes() else None)
        self._placement = make_placement(settings.parallel, settings.mesh)
        self.load = load or cache(loader(settings))
        self.dataset = self.load if made is None else cache(partial(made, self.load))
        self._trainers: dict[tuple[object, ...], Trainer] = {}

    @property
    def followed(self) -> Settings:
        """The settings as they decide numbers, whatever the methods."""
        return as_groups_of_jit(self.settings, self._placement)

    def again(self) -> Callable[[], "Comparison"]:
        """What makes the same in another process, which loads for itself."""
        return partial(Comparison, self.settings, self.made)

    def trainer(self, variant: Variant, dataset: Dataset) -> Trainer:
        """The variant on data of that shape."""
        key = (variant, dataset.X_train.shape, dataset.num_classes)
        if key not in self._trainers:
            changes = dict(variant.changes)
            method = adjusted(METHODS[variant.method], self.settings.changed(**changes))
            config = self.config.changed(**changes)
            self._trainers[key] = make_trainer(method, config, dataset, self._placement)
        return self._trainers[key]

    def __call__(self, variant: Variant, seed: int) -> Run:
        """The run, without its final state; of one that diverges the epochs before, and NaNs."""
        dataset = self.dataset(seed)
        with self._events.of(str(variant), seed) as log:
            report = reporter(f"{variant}, seed {seed}", self.config.epochs, self.advance, log)
            run = _fit_or_diverge(self.trainer(variant, dataset), dataset, seed, report)
        return run._replace(state=None, changes=variant.changes)


def run_all(
    comparison: Comparison,
    tasks: Sequence[tuple[Variant, int]],
    out: Path,
    jobs: int = 1,
    resume: bool = False,
    keep: str = RUNS,
    tested: str = "test",
    write: Callable[[Sequence[Run]], None] = ignore,
) -> list[Run]:
    """Trains every variant under its seed, and rewrites the files of results after each run.

    Of several processes over hosts all train, and one writes and shows progress.

    Args:
        comparison: what the variants share.
        tasks: what to train, under which seed of the split, the initialization, the batches and
            the noise.
        out: the folder for finished runs.
        jobs: how many runs at once.
        resume: whether finished runs of an earlier call with the same settings are kept.
        keep: the file of finished runs.
        tested: what the rows are called that runs do not train on.
        write: is given the finished runs after each, in the order of the tasks.

    Raises:
        UserError: for whatever does not fit, before any work is done; for kept runs of other
            settings.
    """
    dataset, epochs = comparison.dataset(tasks[0][1]), comparison.config.epochs
    for variant in dict.fromkeys(variant for variant, _ in tasks):
        comparison.trainer(variant, dataset)
    protocol = _protocol_of(comparison.followed, dataset)
    # Several hosts need not see the same files; then all train everything.
    done = read_runs(out / keep, protocol) if resume and jax.process_count() == 1 else {}
    missing = [task for task in tasks if _name(task) not in done]
    with progress(len(missing) * epochs, writes()) as (advance, say):
        comparison.advance, comparison.kept = advance, len(tasks) - len(missing)
        if not resume and (out / keep).exists():
            say(
                f"{out / keep} has runs of an earlier call, which the first one that ends replaces."
            )
        if comparison.kept:
            say(f"{comparison.kept} of {len(tasks)} runs are kept from an earlier call.")
        make = comparison.again() if jobs > 1 else lambda: comparison
        for task, run in finished(missing, make, jobs):
            done[_name(task)] = run
            say(summary(run, tested))
            for _ in range(epochs if jobs > 1 else 0):
                advance(f"{task[0]}, seed {task[1]}")
            if writes():
                write_runs(out / keep, protocol, [(name, run) for (name, _), run in done.items()])
                write([done[_name(task)] for task in tasks if _name(task) in done])
    runs = [done[_name(task)] for task in tasks]
    if writes():
        write(runs)
    return runs


def _name(task: tuple[Variant, int]) -> tuple[str, int]:
    """The name of a run among finished ones."""
    return str(task[0]), task[1]


def _protocol_of(settings: Settings, dataset: Dataset) -> dict[str, Any]:
    config = config_of(settings, *dataset[:4])
    return {name: value for name, value in config.items() if name not in _WHICH}


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


def summary(run: Run, tested: str = "test") -> str:
    """A finished run in a line; ``tested`` are the rows that it did not train on."""
    last, name = run.curve[-1], Variant(run.method, run.changes)
    if run.diverged:
        return f"{name}, seed {run.seed}: {run.outcome}"
    return (
        f"{name}, seed {run.seed}: {tested} accuracy {100 * last.test_accuracy:.2f}%, "
        f"training loss {last.train_loss:.4g}, {run.step_ms:.2f} ms per step"
    )
