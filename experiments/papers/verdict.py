"""The findings of a table: its orderings over paired seeds, then its numbers beside the paper's."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from experiments.analysis.measures import Values, factor, gains, heading, unit, words
from experiments.analysis.statistics import above, interval, mean_and_deviation, mean_and_interval
from experiments.papers.grid import Grid, Measure, Ordering
from experiments.papers.item import NOT_TRAINED, UNDECIDED, Finding
from experiments.papers.training import Trained
from experiments.training.run import Epoch, Run

NOTE = (
    "An ordering holds (yes) if the mean difference over paired seeds is positive with its whole "
    "95% interval (Student's t, in brackets), fails (no) if it is negative with it, and is "
    "undecided otherwise, with one seed always. Where a side diverged or stayed at chance nothing "
    "is compared: not trained."
)


def by_interval(
    statement: str, wanted: str, differences: Values, ours: str, margin: float = 0.0
) -> Finding:
    """Makes a finding that holds if the whole interval of the differences is above -margin.

    It fails if the whole interval is below, and is undecided otherwise.

    Args:
        statement: the claim.
        wanted: the claimed sign of the differences, in a word or two.
        differences: the differences over paired seeds; not finite if a training was lost.
        ours: our result, in words.
        margin: by how much the differences may be below zero.
    """
    holds = above(*interval(differences), -margin)
    if holds is not None:
        return Finding(statement, ours, wanted, holds)
    trained = np.isfinite(differences).all()
    return Finding(statement, ours, wanted, reason=UNDECIDED if trained else NOT_TRAINED)


def early(curve: Sequence[Epoch]) -> Float[np.ndarray, " epochs"]:
    """Returns the test accuracies of the first fifth of the epochs, at least two."""
    return np.array([entry.test_accuracy for entry in curve[: max(2, len(curve) // 5)]])


def measured(run: Run, measure: Measure | str) -> float:
    """Returns a measure of a run's last epoch or first ones, or a score of its network."""
    if measure in run.scores:
        return run.scores[measure]
    if measure == "early_accuracy":
        return float(early(run.curve).mean())
    if measure == "early_change":
        return float(np.abs(np.diff(early(run.curve))).mean()) if len(run.curve) > 1 else np.nan
    return float(getattr(run.curve[-1], measure))


def statement_of(ordering: Ordering, column: str) -> str:
    """Returns the claim of an ordering, in words."""
    where = f" ({column})" if column else ""
    claim = f"{ordering.better} better than {ordering.worse}{where}"
    if ordering.margin:
        close = f"within {ordering.margin:g}{unit(ordering.measure)} of {ordering.worse}"
        claim = f"{ordering.better} {close}, or better{where}"
    return f"{claim}, {words(ordering.measure)}"


def comparison(
    ordering: Ordering, column: str, better: Sequence[Run], worse: Sequence[Run]
) -> Finding:
    """Judges the claim that one row is better than another.

    Args:
        ordering: the claim.
        column: the column.
        better: the runs of the row that should be better, by seed.
        worse: the runs of the other row, of the same seeds.
    """
    statement, measure = statement_of(ordering, column), ordering.measure
    if lost := [run for run in (*better, *worse) if run.outcome]:
        names = ", ".join(dict.fromkeys(f"{run.method} {run.failure}" for run in lost))
        return Finding(statement, names, "better", reason=NOT_TRAINED)
    sides = (np.array([measured(run, measure) for run in runs]) for runs in (better, worse))
    differences = gains(measure, *sides)
    gained = mean_and_interval(differences, "+.2f", unit(measure))
    return by_interval(statement, "better", differences, gained, ordering.margin)


def findings_of(grid: Grid, trained: Sequence[Trained]) -> list[Finding]:
    """Makes all findings of a grid's runs: claims, then numbers beside the paper's and cited ones.

    An ordering is judged in each column that has both rows, over paired seeds.
    """
    runs = {(each.cell.row, each.cell.column): each.runs for each in trained}
    cited = heading(grid.measure, grid.as_error)
    return [
        *(
            comparison(each, column, runs[each.better, column], runs[each.worse, column])
            for each in grid.orderings
            for column in dict.fromkeys(column for _, column in runs)
            if each.column in (None, column)
            and {(each.better, column), (each.worse, column)} <= runs.keys()
        ),
        *(_shown(grid, each, name) for name in (grid.measure, *grid.beside) for each in trained),
        *(
            Finding(f"{name}: {cited}", "", f"{value:g} (cited there)")
            for name, value in grid.literature.items()
        ),
    ]


def _shown(grid: Grid, trained: Trained, name: str) -> Finding:
    cell, runs = trained
    # The accuracy of a diverged run is the first class's, since its logits are NaN.
    finite = [run for run in runs if math.isfinite(run.curve[-1].train_loss)]
    numbers = np.array([measured(run, name) for run in finite])
    as_error = grid.as_error and name == grid.measure
    numbers = factor(name) * (1 - numbers if as_error else numbers)
    lost = [f"diverged {len(runs) - len(finite)} of {len(runs)}"] if finite != runs else []
    level = [mean_and_deviation(list(numbers), ".2f")] if finite else []
    reported = cell.reported if name == grid.measure else cell.also.get(name)
    theirs = "" if reported is None else f"{reported:g}"
    return Finding(f"{cell.name}: {heading(name, as_error)}", ", ".join([*level, *lost]), theirs)
