"""Whether one row of a table is better than another, over paired seeds."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats

from experiments.papers.grid import Measure
from experiments.papers.item import Claim
from experiments.training.fit import Run

#: How sure a verdict is.
CONFIDENCE = 0.95

#: What stands in the place of yes or no.
UNDECIDED, NOT_TRAINED = "undecided", "not trained"

NOTE = (
    "An ordering holds (yes) if the mean difference over paired seeds is positive with its whole "
    "95% interval (Student's t), fails (no) if it is negative with it, and is undecided otherwise, "
    "with one seed always. Where a side diverged or stayed at chance nothing is compared: not "
    "trained."
)


def interval(differences: Float[np.ndarray, " seeds"]) -> tuple[float, float]:
    """The 95% interval of the mean; everything for a single difference."""
    count = len(differences)
    if count < 2:
        return -np.inf, np.inf
    half = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * differences.std(ddof=1) / count**0.5
    return float(differences.mean() - half), float(differences.mean() + half)


def comparison(
    statement: str, measure: Measure, better: Sequence[Run], worse: Sequence[Run]
) -> Claim:
    """The claim that one row is better than another.

    Args:
        statement: what is claimed.
        measure: accuracies should be higher, losses lower.
        better: the runs of the row that should be, by seed.
        worse: those of the other, of the same seeds.
    """
    if lost := [run for run in (*better, *worse) if run.outcome]:
        names = ", ".join(dict.fromkeys(f"{run.method} {run.outcome}" for run in lost))
        return Claim(statement, names, "better", said=NOT_TRAINED)
    ours, theirs = (
        np.array([getattr(run.curve[-1], measure) for run in runs]) for runs in (better, worse)
    )
    is_accuracy = measure.endswith("accuracy")
    gains = 100 * (ours - theirs) if is_accuracy else theirs - ours
    low, high = interval(gains)
    unit = "points" if is_accuracy else "nats"
    between = f", 95% from {low:+.2f} to {high:+.2f}" if len(gains) > 1 else ", one seed"
    found = f"by {gains.mean():+.2f} {unit}{between}"
    if low > 0 or high < 0:
        return Claim(statement, found, "better", low > 0)
    return Claim(statement, found, "better", said=UNDECIDED)
