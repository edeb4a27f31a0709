"""Whether one row of a table is better than another, over paired seeds."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from experiments.papers.grid import Measure, Ordering
from experiments.papers.item import Claim
from experiments.runs.analyse import above, interval
from experiments.training.fit import Run
from experiments.training.history import Epoch

#: What stands in the place of yes or no.
UNDECIDED, NOT_TRAINED = "undecided", "not trained"

NOTE = (
    "An ordering holds (yes) if the mean difference over paired seeds is positive with its whole "
    "95% interval (Student's t), fails (no) if it is negative with it, and is undecided otherwise, "
    "with one seed always. Where a side diverged or stayed at chance nothing is compared: not "
    "trained."
)


Differences = Float[np.ndarray, " seeds"]


def by_interval(claim: Claim, differences: Differences, margin: float = 0.0) -> Claim:
    """The claim judged: it holds if all of the interval is above -margin, fails if all is below."""
    holds = above(*interval(differences), -margin)
    return claim._replace(said=UNDECIDED) if holds is None else claim._replace(holds=holds)


def shown(differences: Differences, form: str, unit: str = "") -> str:
    """Paired differences in words: their mean and interval."""
    low, high = interval(differences)
    between = f", 95% from {low:{form}} to {high:{form}}" if len(differences) > 1 else ", one seed"
    return f"by {differences.mean():{form}}{unit}{between}"


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
    """The claim in words."""
    where = f" ({column})" if column else ""
    of = ordering.measure.replace("_", " ")
    if ordering.margin:
        unit = "points" if _is_fraction(ordering.measure) else "nats"
        close = f"within {ordering.margin:g} {unit} of"
        return f"{ordering.better} {close} {ordering.worse}, or better{where}, {of}"
    return f"{ordering.better} better than {ordering.worse}{where}, {of}"


def _is_fraction(measure: Measure) -> bool:
    return measure.endswith(("accuracy", "change"))


def comparison(
    ordering: Ordering, column: str, better: Sequence[Run], worse: Sequence[Run], last: int = 1
) -> Claim:
    """The claim that one row is better than another.

    Args:
        ordering: what is claimed.
        column: where.
        better: the runs of the row that should be, by seed.
        worse: those of the other, of the same seeds.
        last: the epochs over which a measure is averaged.
    """
    statement = statement_of(ordering, column)
    if lost := [run for run in (*better, *worse) if run.outcome]:
        names = ", ".join(dict.fromkeys(f"{run.method} {run.outcome}" for run in lost))
        return Claim(statement, names, "better", said=NOT_TRAINED)
    ours, theirs = (
        np.array([measured(run, ordering.measure, last) for run in runs])
        for runs in (better, worse)
    )
    gains = ours - theirs if ordering.measure.endswith("accuracy") else theirs - ours
    if _is_fraction(ordering.measure):
        gains = 100 * gains
    found = shown(gains, "+.2f", " points" if _is_fraction(ordering.measure) else " nats")
    return by_interval(Claim(statement, found, "better"), gains, ordering.margin)
