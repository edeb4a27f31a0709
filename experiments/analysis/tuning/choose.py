"""Trials of every method on held-out rows, and the choice of its best settings."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.analysis.tuning.grid import Grid, combinations
from experiments.analysis.tuning.held_out import held_out
from experiments.analysis.tuning.report import write_trials
from experiments.config import Workers
from experiments.methods.method import Method
from experiments.runs.comparison import OFFSET, Comparison, Task, run_all
from experiments.runs.store import Store
from experiments.training.run import Run


class Tuning(NamedTuple):
    """Values to try for each method.

    Attributes:
        grid: the values to try.
        epochs: the epochs of a trial; None for those of the result.
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
    """Returns the trainings of the result: each method under each seed with its best settings.

    Every combination of the grid is trained under every seed, on four fifths of its training rows;
    the accuracy on the rest decides.

    Args:
        comparison: the comparison of the results, whose config and loaded rows the trials share.
        methods: the methods.
        seeds: the seeds of the results.
        tuning: the values to try.
        out: the folder for the store, tuning.csv and tuning.png.
        workers: the processes, or the cluster, of the trials.
        fresh: if True, trials that are in the store are trained again.
    """
    config = comparison.config
    config = config.changed(epochs=tuning.epochs or config.epochs)
    trials = Comparison(config, held_out, comparison.load)
    tasks = [
        (method.name, changes, seed + OFFSET)
        for method in methods
        for changes in combinations(method, tuning.grid)
        for seed in seeds
    ]
    specs, store = trials.specs(tasks), Store(out)
    kept = store.finished(() if fresh else specs)
    runs = run_all(trials, specs, store, kept, workers, "held-out")
    chosen = [best_of(method.name, seed, runs) for method in methods for seed in seeds]
    write_trials(out, tuning.grid, runs, chosen)
    return [(run.method, run.changes, run.seed - OFFSET) for run in chosen]


def best_of(method: str, seed: int, runs: Sequence[Run]) -> Run:
    """Returns the trial of a method and seed with the best held-out accuracy, then lowest loss."""
    trials = [run for run in runs if (run.method, run.seed) == (method, seed + OFFSET)]
    return max(trials, key=_merit)


def _merit(run: Run) -> tuple[float, float]:
    last = run.curve[-1]
    if run.diverged or not math.isfinite(last.test_accuracy):
        return -math.inf, -math.inf
    return last.test_accuracy, -last.test_loss
