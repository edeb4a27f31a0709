"""What a table says: its orderings over paired seeds, then its numbers beside the paper's."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from experiments.papers.grid import Grid, Measure, Ordering
from experiments.papers.item import NOT_TRAINED, UNDECIDED, Finding
from experiments.papers.training import Trained
from experiments.reports.table import mean_and_deviation, mean_and_interval
from experiments.runs.analyse import above, interval
from experiments.runs.measures import Values, factor, gains, heading, unit, words
from experiments.training.fit import Run
from experiments.training.history import Epoch

NOTE = (
    "An ordering holds (yes) if the mean difference over paired seeds is positive with its whole "
    "95% interval (Student's t, in brackets), fails (no) if it is negative with it, and is "
    "undecided otherwise, with one seed always. Where a side diverged or stayed at chance nothing "
    "is compared: not trained."
)


def by_interval(
    statement: str, wanted: str, differences: Values, ours: str, margin: float = 0.0
) -> Finding:
    """A finding that holds if all of the differences' interval is above -margin.

    It fails if all is below, and is undecided between.

    Args:
        statement: what is claimed.
        wanted: of the differences, in a word or two.
        differences: over paired seeds; not finite where a training was lost.
        ours: what is found, in words.
        margin: by how much they may be below zero.
    """
    holds = above(*interval(differences), -margin)
    if holds is not None:
        return Finding(statement, ours, wanted, holds)
    trained = np.isfinite(differences).all()
    return Finding(statement, ours, wanted, said=UNDECIDED if trained else NOT_TRAINED)


def early(curve: Sequence[Epoch]) -> Float[np.ndarray, " epochs"]:
    """The test accuracies of the first fifth of the epochs, and of two at least."""
    return np.array([entry.test_accuracy for entry in curve[: max(2, len(curve) // 5)]])


def measured(run: Run, measure: Measure | str, last: int = 1) -> float:
    """A measure of a run, the mean of so many epochs at its end, or a score of what it trained."""
    if measure in run.scores:
        return run.scores[measure]
    if measure == "early_accuracy":
        return float(early(run.curve).mean())
    if measure == "early_change":
        return float(np.abs(np.diff(early(run.curve))).mean()) if len(run.curve) > 1 else np.nan
    return float(np.mean([getattr(entry, measure) for entry in run.curve[-last:]]))


def statement_of(ordering: Ordering, column: str) -> str:
    """What is claimed, in words."""
    where = f" ({column})" if column else ""
    of = words(ordering.measure)
    if ordering.margin:
        close = f"within {ordering.margin:g}{unit(ordering.measure)} of"
        return f"{ordering.better} {close} {ordering.worse}, or better{where}, {of}"
    return f"{ordering.better} better than {ordering.worse}{where}, {of}"


def comparison(
    ordering: Ordering, column: str, better: Sequence[Run], worse: Sequence[Run], last: int = 1
) -> Finding:
    """Whether one row is better than another.

    Args:
        ordering: what is claimed.
        column: where.
        better: the runs of the row that should be, by seed.
        worse: those of the other, of the same seeds.
        last: the epochs over which a measure is averaged.
    """
    statement, measure = statement_of(ordering, column), ordering.measure
    if lost := [run for run in (*better, *worse) if run.outcome]:
        names = ", ".join(dict.fromkeys(f"{run.method} {run.outcome}" for run in lost))
        return Finding(statement, names, "better", said=NOT_TRAINED)
    sides = (np.array([measured(run, measure, last) for run in runs]) for runs in (better, worse))
    differences = gains(measure, *sides)
    found = mean_and_interval(differences, "+.2f", unit(measure))
    return by_interval(statement, "better", differences, found, ordering.margin)


def findings_of(grid: Grid, trained: Sequence[Trained], last: int = 1) -> list[Finding]:
    """All findings of a grid's runs.

    Args:
        grid: the table.
        trained: its runs.
        last: the epochs at the end over which measures are averaged.
    """
    shown = (grid.measure, *grid.beside)
    return [
        *(finding for ordering in grid.orderings for finding in _judged(ordering, trained, last)),
        *(_shown(grid, each, name, last) for name in shown for each in trained),
        *(_cited(grid, name, value) for name, value in grid.literature.items()),
    ]


def _judged(ordering: Ordering, trained: Sequence[Trained], last: int) -> list[Finding]:
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


def _shown(grid: Grid, trained: Trained, name: str, last: int) -> Finding:
    cell, runs = trained
    # Logits that are NaN are the first class's: what diverged has an accuracy, which says nothing.
    finite = [run for run in runs if math.isfinite(run.curve[-1].train_loss)]
    numbers = np.array([measured(run, name, last) for run in finite])
    as_error = grid.as_error and name == grid.measure
    numbers = factor(name) * (1 - numbers if as_error else numbers)
    lost = [f"diverged {len(runs) - len(finite)} of {len(runs)}"] if finite != runs else []
    found = [mean_and_deviation(list(numbers), ".2f")] if finite else []
    reported = cell.reported if name == grid.measure else cell.also.get(name)
    theirs = "" if reported is None else f"{reported:g}"
    return Finding(f"{cell.name}: {heading(name, as_error)}", ", ".join([*found, *lost]), theirs)


def _cited(grid: Grid, name: str, value: float) -> Finding:
    what = heading(grid.measure, grid.as_error)
    return Finding(f"{name}: {what}", "", f"{value:g} (cited there)")
