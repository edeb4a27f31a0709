"""What a table says: its orderings, judged, then its numbers beside the paper's."""

import math
from collections.abc import Sequence

import numpy as np

from experiments.papers.grid import Grid, Ordering
from experiments.papers.item import Claim
from experiments.papers.trainings import Trained
from experiments.papers.verdict import comparison, measured
from experiments.reports.table import mean_and_deviation

#: How measures and scores are called in a table.
NAMES = {
    "train_loss": "training loss",
    "train_accuracy": "training accuracy",
    "class_accuracy": "mean-class accuracy",
    "top5_accuracy": "top-5 accuracy",
}


def claims_of(grid: Grid, trained: Sequence[Trained], last: int = 1) -> list[Claim]:
    """All claims of a grid's runs.

    Args:
        grid: the table.
        trained: its runs.
        last: the epochs at the end over which measures are averaged.
    """
    shown = (grid.measure, *grid.beside)
    return [
        *(claim for ordering in grid.orderings for claim in _judged(ordering, trained, last)),
        *(_shown(grid, each, name, last) for name in shown for each in trained),
        *(_cited(grid, name, value) for name, value in grid.literature.items()),
    ]


def _judged(ordering: Ordering, trained: Sequence[Trained], last: int) -> list[Claim]:
    """The ordering in each column that has both rows, over paired seeds."""
    runs = {(each.cell.row, each.cell.column): each.runs for each in trained}
    columns = dict.fromkeys(each.cell.column for each in trained)
    places = [
        ((ordering.better, column), (ordering.worse, column))
        for column in columns
        if ordering.column in (None, column)
    ]
    return [
        comparison(ordering, better[1], runs[better], runs[worse], last)
        for better, worse in places
        if better in runs and worse in runs
    ]


def _shown(grid: Grid, trained: Trained, name: str, last: int) -> Claim:
    what, factor, flipped = _unit(grid, name)
    cell, runs = trained
    # Logits that are NaN are the first class's: what diverged has an accuracy, which says nothing.
    finite = [run for run in runs if math.isfinite(run.curve[-1].train_loss)]
    numbers = np.array([measured(run, name, last) for run in finite])
    numbers = factor * ((1 - numbers) if flipped else numbers)
    lost = [f"diverged {len(runs) - len(finite)} of {len(runs)}"] if finite != runs else []
    found = [mean_and_deviation(list(numbers), ".2f")] if finite else []
    reported = cell.reported if name == grid.measure else cell.also.get(name)
    theirs = "" if reported is None else f"{reported:g}"
    return Claim(f"{cell.name}: {what}", ", ".join([*found, *lost]), theirs)


def _cited(grid: Grid, name: str, value: float) -> Claim:
    return Claim(f"{name}: {_unit(grid, grid.measure)[0]}", "", f"{value:g} (cited there)")


def _unit(grid: Grid, name: str) -> tuple[str, float, bool]:
    """What a measure is called, its factor, and whether it is shown as an error."""
    what = NAMES.get(name, name.replace("_", " "))
    if not name.endswith("accuracy"):
        return what, 1.0, False
    flipped = grid.as_error and name == grid.measure
    return (what.replace("accuracy", "error") if flipped else what) + ", %", 100.0, flipped
