"""Trials of every method on held-out rows, and the settings that were best."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.comparison import Comparison, Task, run_all
from experiments.methods.method import Method
from experiments.runs.store import Store
from experiments.settings import Workers
from experiments.training.fit import Run
from experiments.tuning.grid import Grid, combinations
from experiments.tuning.held_out import OFFSET, held_out
from experiments.tuning.report import write_trials


class Tuning(NamedTuple):
    """What each method chooses for itself.

    Attributes:
        grid: the values to try.
        epochs: of a trial; None for those of the result.
    """

    grid: Grid
    epochs: int | None = None


def choose(
    comparison: Comparison,
    methods: Sequence[Method],
    seeds: Sequence[int],
    tuning: Tuning,
    out: Path,
    workers: Workers,
    fresh: bool,
) -> list[Task]:
    """What to train for the result: each method under each seed with its best settings.

    Every combination of the grid is trained under every seed, on four fifths of its training rows;
    the accuracy on the rest decides.

    Args:
        comparison: of the results; its settings are the trials', and its rows are not loaded anew.
        methods: the methods.
        seeds: of the results.
        tuning: what is tried.
        out: the folder for the store, tuning.csv and tuning.png.
        workers: how many trials at once, and where.
        fresh: whether also trials that are in the store are trained.
    """
    settings = comparison.settings
    settings = settings.changed(epochs=tuning.epochs or settings.epochs)
    trials = Comparison(settings, held_out, comparison.load)
    tasks = [
        (method.name, changes, seed + OFFSET)
        for method in methods
        for changes in combinations(method, tuning.grid)
        for seed in seeds
    ]
    runs = run_all(trials, trials.specs(tasks), Store(out), workers, fresh, "held-out")
    chosen = [best_of(method.name, seed, runs) for method in methods for seed in seeds]
    write_trials(out, tuning.grid, runs, chosen)
    return [(run.method, run.changes, run.seed - OFFSET) for run in chosen]


def best_of(method: str, seed: int, runs: Sequence[Run]) -> Run:
    """The trial of a method for a seed of best held-out accuracy; of equals, the lowest loss."""
    own = [run for run in runs if (run.method, run.seed) == (method, seed + OFFSET)]
    return max(own, key=_merit)


def _merit(run: Run) -> tuple[float, float]:
    last = run.curve[-1]
    if run.diverged or not math.isfinite(last.test_accuracy):
        return -math.inf, -math.inf
    return last.test_accuracy, -last.test_loss
