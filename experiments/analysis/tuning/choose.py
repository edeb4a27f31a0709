"""Trials of every method on held-out rows, and the choice of its best settings."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.analysis.tuning.grid import Grid, combinations
from experiments.analysis.tuning.held_out import held_out
from experiments.config import Workers
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.runs.comparison import Comparison, Task, run_all
from experiments.runs.spec import OFFSET
from experiments.runs.store import Store
from experiments.training.run import Run


class Tuning(NamedTuple):
    """Values to try for each method.

    Attributes:
        grid: the values to try.
        epochs: the epochs of a trial; None for those of the result.
        seeds: the number of seeds whose mean chooses for all; None for a choice under each seed.
    """

    grid: Grid
    epochs: int | None = None
    seeds: int | None = None


class Choice(NamedTuple):
    """The trials of a comparison, and the settings that they chose.

    Attributes:
        tasks: the trainings of the result, each method under each seed at its best.
        trials: all trials.
        chosen: those whose settings the tasks have.
    """

    tasks: Sequence[Task]
    trials: Sequence[Run]
    chosen: Sequence[Run]


def choose(
    comparison: Comparison,
    methods: Sequence[Method],
    seeds: Sequence[int],
    tuning: Tuning,
    store: Store,
    workers: Workers,
    fresh: bool,
    before: Callable[[], None],
) -> Choice:
    """Returns the choice of each method under each seed.

    Every combination of the grid is trained under every seed of a trial, on four fifths of its
    training rows; the accuracy on the rest decides.

    Args:
        comparison: the comparison of the results, whose config and loaded rows the trials share.
        methods: the methods.
        seeds: the seeds of the results.
        tuning: the values to try.
        store: the store of the trials.
        workers: the processes, or the cluster, of the trials.
        fresh: if True, trials that are in the store are trained again.
        before: called before trials are trained, if some are.

    Raises:
        UserError: for more seeds of trials than of results.
    """
    if tuning.seeds is not None and tuning.seeds > len(seeds):
        raise UserError(
            f"--tune-seeds is {tuning.seeds}, and --seeds {len(seeds)}; wanted trials under some "
            "or all of the seeds of the results: take fewer --tune-seeds, or more --seeds."
        )
    config = comparison.config
    config = config.changed(epochs=tuning.epochs or config.epochs)
    trials = Comparison(config, held_out, comparison.load)
    tasks = [
        (method.name, changes, seed + OFFSET)
        for method in methods
        for changes in combinations(method, tuning.grid)
        for seed in seeds[: tuning.seeds]
    ]
    specs = trials.specs(tasks)
    kept, missing = store.split(specs, fresh)
    if missing:
        before()
    runs = run_all(trials, specs, store, kept, workers, "held-out")
    best = best_of if tuning.seeds is None else best_of_all
    chosen = {(each.name, seed): best(each.name, seed, runs) for each in methods for seed in seeds}
    tasks = [(method, run.changes, seed) for (method, seed), run in chosen.items()]
    return Choice(tasks, runs, [*chosen.values()])


def best_of(method: str, seed: int, runs: Sequence[Run]) -> Run:
    """Returns the trial of a method and seed with the best held-out accuracy, then lowest loss."""
    trials = [run for run in runs if (run.method, run.seed) == (method, seed + OFFSET)]
    return max(trials, key=_merit)


def best_of_all(method: str, seed: int, runs: Sequence[Run]) -> Run:
    """Returns a trial at the settings with the best mean held-out accuracy over seeds."""
    trials = [run for run in runs if run.method == method]

    def merit(run: Run) -> tuple[float, float]:
        merits = [_merit(each) for each in trials if each.changes == run.changes]
        accuracy, loss = (math.fsum(values) / len(merits) for values in zip(*merits, strict=True))
        return accuracy, loss

    return max(trials, key=merit)


def _merit(run: Run) -> tuple[float, float]:
    last = run.curve[-1]
    if run.diverged or not math.isfinite(last.test_accuracy):
        return -math.inf, -math.inf
    return last.test_accuracy, -last.test_loss
