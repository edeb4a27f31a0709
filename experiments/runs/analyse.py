"""What finished runs come to: one row a run, means and spreads, and intervals of differences."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from jaxtyping import Float
from scipy import stats

from experiments.runs.measures import MEASURES
from experiments.runs.spec import shown
from experiments.runs.store import Row

#: How sure an interval is.
CONFIDENCE = 0.95
#: The numbers of seeds at which the plan of the results looks, and how sure an interval is at each:
#: Pocock's constant for three looks, whose nominal level of 0.0221 keeps 0.05 over all of them.
LOOKS, LOOK_CONFIDENCE = (3, 6, 10), 0.9779


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """One row a run: its method, the settings in which runs differ, its seed, and what came of it.

    A setting that a run does not have is missing; what a run that diverged measured is NaN.
    """
    first = rows[0].spec if rows else {}
    names = dict.fromkeys(name for row in rows for name in row.spec)
    own = [name for name in names if any(row.spec.get(name) != first.get(name) for row in rows)]
    settings = [name for name in own if name not in ("method", "seed", "data")]
    return pl.DataFrame([_flat(row, settings) for row in rows], infer_schema_length=None)


def summary(runs: pl.DataFrame) -> pl.DataFrame:
    """One row for all seeds of a method and its settings: means and sample standard deviations."""
    if runs.is_empty():
        return runs
    found = {"seed", "epochs", *MEASURES, "step_ms", "parameters", "outcome", "date"}
    same = [name for name in runs.columns if name not in found]
    trained = pl.col("outcome") == ""
    accuracy, loss = (pl.col(name).filter(trained) for name in ("test_accuracy", "test_loss"))
    return runs.group_by(same, maintain_order=True).agg(
        runs=pl.len(),
        failed=(~trained).sum(),
        test_accuracy=accuracy.mean(),
        accuracy_deviation=accuracy.std(),
        test_loss=loss.mean(),
        date=pl.col("date").max(),
    )


def interval(
    differences: Float[np.ndarray, " seeds"], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The interval of the mean of paired differences; everything for a single one.

    Student's t: it holds if the differences are independent and normal.
    """
    count = len(differences)
    if count < 2:
        return -np.inf, np.inf
    half = stats.t.ppf((1 + confidence) / 2, count - 1) * stats.sem(differences)
    return float(differences.mean() - half), float(differences.mean() + half)


def above(low: float, high: float, bound: float = 0.0) -> bool | None:
    """Whether all of an interval is above a bound, or all below; None where it leaves it open."""
    return True if low > bound else False if high < bound else None


def deciding_look(
    differences: Float[np.ndarray, " seeds"],
    decides: Callable[[float, float], bool | None],
    looks: Sequence[int] = LOOKS,
) -> tuple[Float[np.ndarray, " seen"], tuple[float, float]]:
    """What the first look that decides has seen, and its interval; else the last look's.

    All looks together miss in some 5.6% of the cases: Pocock's constant keeps 5% where deviations
    are known.

    Args:
        differences: of the seeds 0, 1, ... in their order.
        decides: what an interval says of the claim; None where it leaves it open.
        looks: numbers of seeds.
    """
    count, found = 0, (-np.inf, np.inf)
    for look in (look for look in looks if look <= len(differences)):
        if decides(*found) is None:
            count, found = look, interval(differences[:look], LOOK_CONFIDENCE)
    return differences[:count], found


def _flat(row: Row, settings: Sequence[str]) -> dict[str, object]:
    run, last = row.run, row.run.curve[-1]
    own = {name: row.spec.get(name) for name in settings}
    return {
        "method": run.method,
        **{name: None if value is None else shown(value) for name, value in own.items()},
        "seed": run.seed,
        "epochs": last.epoch,
        **{name: getattr(last, name) for name in MEASURES},
        "step_ms": run.step_ms,
        "parameters": run.parameters,
        "outcome": run.outcome,
        **row.versions,
        "date": row.date,
    }
