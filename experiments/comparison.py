"""The runs of a comparison: those in the store as they are, the others trained."""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial

import jax

from experiments.checkpoints.config import checksum
from experiments.config import NonFinite
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.errors import Diverged
from experiments.methods.table import METHODS
from experiments.progress import Advance, progress
from experiments.reports.tensorboard import EventFiles
from experiments.runs.execute import execute
from experiments.runs.spec import Changes, Spec, name_of
from experiments.runs.store import Store
from experiments.settings import HERE, Settings, Workers
from experiments.training.devices import make_placement
from experiments.training.fit import DIVERGED, Run, fit, start
from experiments.training.groups import as_groups_of_jit
from experiments.training.history import Checkpointer, Epoch
from experiments.training.processes import writes
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm import parameter_count

#: What loads the dataset of a seed, and what makes another of it.
Load = Callable[[int], Dataset]
Made = Callable[[Load, int], Dataset]

#: A method's name, the settings that it has for itself, and the seed.
Task = tuple[str, Changes, int]


class Comparison:
    """Trains methods by name; the seeds of a method share its compiled functions.

    Args:
        settings: what the methods share.
        made: ``(load, seed) -> dataset``, of what loads the dataset of a seed; None for that
            dataset itself.
        loader: what loads it, and keeps it; None for what the settings name.
        nonfinite: what is done about a step that would make something not finite.

    Attributes:
        advance: is told of each epoch.
        kept: how many of the runs an earlier call finished.
    """

    def __init__(
        self,
        settings: Settings,
        made: Made | None = None,
        loader: Load | None = None,
        nonfinite: NonFinite = "stop",
    ):
        self.settings, self.made = settings, made
        self.advance: Advance = lambda what: None
        self.kept = 0
        self.config = settings.changed(nonfinite=nonfinite)
        self._events = EventFiles(settings.tensorboard if writes() else None)
        self._placement = make_placement(settings.parallel, settings.mesh)
        rows = settings.train_rows, settings.test_rows
        self.load = loader or cache(lambda seed: load(settings.dataset, seed, *rows))
        self.dataset = self.load if made is None else cache(partial(made, self.load))
        self._trainers: dict[tuple[object, ...], Trainer] = {}

    def again(self) -> Callable[[], "Comparison"]:
        """What makes the same in another process, which loads for itself."""
        return partial(Comparison, self.settings, self.made)

    def specs(self, tasks: Sequence[Task]) -> list[Spec]:
        """The specs of runs: a method's name, the settings that it has for itself, and a seed.

        The rows of the first seed tell the data from others of the same name.
        """
        data = checksum(*self.dataset(tasks[0][2])[:4])
        followed = as_groups_of_jit(self.settings, self._placement)
        return [Spec(method, seed, followed, changes, data) for method, changes, seed in tasks]

    def trainer(self, spec: Spec, dataset: Dataset) -> Trainer:
        """What trains the spec, whatever its seed, on data of that shape."""
        key = (spec.method, spec.changes, dataset.X_train.shape, dataset.num_classes)
        if key not in self._trainers:
            changes = dict(spec.changes)
            method = METHODS[spec.method].adjusted(self.settings.changed(**changes))
            config = self.config.changed(**changes)
            self._trainers[key] = make_trainer(method, config, dataset, self._placement)
        return self._trainers[key]

    def __call__(self, spec: Spec, keeper: Checkpointer) -> Run:
        """The run, without its final state, which need not travel or be kept."""
        return self.trained(spec, keeper)._replace(state=None)

    def trained(self, spec: Spec, keeper: Checkpointer) -> Run:
        """The run; of one that diverges the epochs before, and NaNs."""
        dataset = self.dataset(spec.seed)
        with self._events.of(spec.name, spec.seed) as log:

            def report(entry: Epoch) -> None:
                log(entry)
                self.advance(f"{spec}, epoch {entry.epoch} of {self.config.epochs}")

            run = _fit_or_diverge(self.trainer(spec, dataset), dataset, spec.seed, report, keeper)
        return run._replace(changes=spec.changes)


def run_all(
    comparison: Comparison,
    tasks: Sequence[Spec],
    store: Store,
    workers: Workers = HERE,
    fresh: bool = False,
    tested: str = "test",
    write: Callable[[Sequence[Run]], None] = lambda runs: None,
) -> list[Run]:
    """The run of every spec: of the store where it is there, else trained.

    Of several processes over hosts all train, and one writes and shows progress.

    Args:
        comparison: what trains.
        tasks: what to train.
        store: of finished runs.
        workers: how many runs at once, and where.
        fresh: whether also what is in the store is trained.
        tested: the name of the rows on which runs are evaluated: test, or held-out.
        write: is given the finished runs after each, in the order of the tasks.

    Raises:
        UserError: for whatever does not fit, before any work is done; for a damaged store.
    """
    dataset, epochs = comparison.dataset(tasks[0].seed), comparison.config.epochs
    for each in {task.name: task for task in tasks}.values():
        comparison.trainer(each, dataset)
    # Several hosts need not see the same files; then all train everything.
    looks = not fresh and jax.process_count() == 1
    done = store.found(tasks if looks else ())
    missing = [task for task in tasks if task not in done]
    with progress(len(missing) * epochs, writes()) as (advance, say):
        comparison.advance, comparison.kept = advance, len(done)
        if done:
            say(f"{len(done)} of {len(tasks)} runs are kept from an earlier call.")
        make = comparison.again() if workers.apart else lambda: comparison
        for task, run in execute(missing, make, store, workers, say):
            done[task] = run
            say(summary(run, tested))
            for _ in range(epochs if workers.apart else 0):
                advance(str(task))
            if writes():
                write([done[task] for task in tasks if task in done])
    runs = [done[task] for task in tasks]
    if writes():
        write(runs)
    return runs


def _fit_or_diverge(
    trainer: Trainer,
    dataset: Dataset,
    seed: int,
    report: Callable[[Epoch], None],
    keeper: Checkpointer,
) -> Run:
    try:
        return fit(trainer, dataset, seed, report, keeper)
    except Diverged as error:
        lost = Epoch(len(error.curve) + 1, *[math.nan] * (len(Epoch._fields) - 1))
        for _ in range(trainer.config.epochs - len(error.curve)):
            report(lost)
        parameters = parameter_count(start(trainer, seed, dataset.X_train).params)
        outcome = f"{DIVERGED}, {error}"
        curve = [*error.curve, lost]
        return Run(trainer.method.name, seed, curve, error.step_ms, parameters, None, outcome)


def summary(run: Run, tested: str = "test") -> str:
    """A finished run in a line; ``tested`` are the rows that it did not train on."""
    last, name = run.curve[-1], name_of(run.method, run.changes)
    if run.diverged:
        return f"{name}, seed {run.seed}: {run.outcome}"
    return (
        f"{name}, seed {run.seed}: {tested} accuracy {100 * last.test_accuracy:.2f}%, "
        f"training loss {last.train_loss:.4g}, {run.step_ms:.2f} ms per step"
    )
