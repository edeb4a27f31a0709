"""What a table says: its orderings, judged, then its numbers beside the paper's."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from experiments.papers.grid import Cell, Grid, Ordering
from experiments.papers.item import Claim
from experiments.papers.trainings import Trained
from experiments.papers.verdict import comparison, measured
from experiments.reports.table import mean_and_deviation
from experiments.training.fit import Run

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
    cells = cells_of(trained)
    shown = (grid.measure, *grid.beside)
    return [
        *(claim for ordering in grid.orderings for claim in _judged(ordering, trained, last)),
        *(_shown(grid, cell, trained, name, last) for name in shown for cell in cells),
        *(_cited(grid, name, value) for name, value in grid.literature.items()),
    ]


def cells_of(trained: Sequence[Trained]) -> list[Cell]:
    """The cells that were trained, in their order."""
    return list({each.cell.name: each.cell for each in trained}.values())


def values(
    trained: Sequence[Trained], cell: Cell, name: str, last: int = 1
) -> Float[np.ndarray, " seeds"]:
    """A measure or score of a cell, by seed; NaN where it was not measured."""

    def value(run: Run) -> float:
        known = name in run.scores or hasattr(run.curve[-1], name)
        return measured(run, name, last) if known else np.nan

    return np.array([value(each.run) for each in trained if each.cell == cell])


def _judged(ordering: Ordering, trained: Sequence[Trained], last: int) -> list[Claim]:
    """The ordering in each column that has both rows, over paired seeds."""
    cells = cells_of(trained)
    by_place = {(cell.row, cell.column): cell for cell in cells}
    columns = dict.fromkeys(cell.column for cell in cells)
    claims = []
    for column in columns if ordering.column is None else [ordering.column]:
        pair = [by_place.get((row, column)) for row in (ordering.better, ordering.worse)]
        if None not in pair:
            better, worse = ([t.run for t in trained if t.cell == cell] for cell in pair)
            claims.append(comparison(ordering, column, better, worse, last))
    return claims


def _shown(grid: Grid, cell: Cell, trained: Sequence[Trained], name: str, last: int) -> Claim:
    what, factor, flipped = _unit(grid, name)
    own = [each for each in trained if each.cell == cell]
    # Logits that are NaN are the first class's: what diverged has an accuracy, which says nothing.
    finite = [each for each in own if math.isfinite(each.run.curve[-1].train_loss)]
    numbers = values(finite, cell, name, last)
    numbers = factor * ((1 - numbers) if flipped else numbers)
    lost = [f"diverged {len(own) - len(finite)} of {len(own)}"] if finite != own else []
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
