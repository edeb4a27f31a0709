"""Statistics of finished runs: one row per run, means and spreads, intervals of differences."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from jaxtyping import Float
from scipy import stats

from experiments.runs.measures import MEASURES
from experiments.runs.spec import shown
from experiments.runs.store import Row

#: The confidence of an interval.
CONFIDENCE = 0.95
#: The numbers of seeds at which the plan of the results looks, and the confidence at each look:
#: Pocock's constant for three looks has a nominal level of 0.0221, and 0.05 over all.
LOOKS, LOOK_CONFIDENCE = (3, 6, 10), 0.9779


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Returns one row per run: its method, the settings in which runs differ, its seed and results.

    A setting that a run does not have is missing; the results of a run that diverged are NaN.
    """
    first = rows[0].spec if rows else {}
    names = dict.fromkeys(name for row in rows for name in row.spec)
    varied = [name for name in names if any(row.spec.get(name) != first.get(name) for row in rows)]
    settings = [name for name in varied if name not in ("method", "seed", "data")]
    return pl.DataFrame([_flat(row, settings) for row in rows], infer_schema_length=None)


def summary(runs: pl.DataFrame) -> pl.DataFrame:
    """Returns one row per method and settings: means and standard deviations over seeds."""
    if runs.is_empty():
        return runs
    results = {"seed", "epochs", *MEASURES, "step_ms", "parameters", "outcome", "date"}
    settings = [name for name in runs.columns if name not in results]
    trained = pl.col("outcome") == ""
    accuracy, loss = (pl.col(name).filter(trained) for name in ("test_accuracy", "test_loss"))
    return runs.group_by(settings, maintain_order=True).agg(
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
    """Returns the interval of the mean of paired differences; infinite for a single one.

    Student's t: it holds if the differences are independent and normal.
    """
    count = len(differences)
    if count < 2:
        return -np.inf, np.inf
    half = stats.t.ppf((1 + confidence) / 2, count - 1) * stats.sem(differences)
    return float(differences.mean() - half), float(differences.mean() + half)


def above(low: float, high: float, bound: float = 0.0) -> bool | None:
    """Returns True if an interval is above a bound, False if below; None if it contains it."""
    return True if low > bound else False if high < bound else None


def deciding_look(
    differences: Float[np.ndarray, " seeds"],
    decides: Callable[[float, float], bool | None],
    looks: Sequence[int] = LOOKS,
) -> tuple[Float[np.ndarray, " used"], tuple[float, float]]:
    """Returns the differences and the interval of the first look that decides, or the last.

    All looks together err in some 5.6% of the cases: Pocock's constant keeps 5% if deviations are
    known.

    Args:
        differences: the differences of the seeds 0, 1, ... in their order.
        decides: ``decides(low, high)`` of an interval; None if it leaves the claim open.
        looks: the numbers of seeds at which to look.
    """
    count, bounds = 0, (-np.inf, np.inf)
    for look in (look for look in looks if look <= len(differences)):
        if decides(*bounds) is None:
            count, bounds = look, interval(differences[:look], LOOK_CONFIDENCE)
    return differences[:count], bounds


def _flat(row: Row, settings: Sequence[str]) -> dict[str, object]:
    run, last = row.run, row.run.curve[-1]
    values = {name: row.spec.get(name) for name in settings}
    return {
        "method": run.method,
        **{name: None if value is None else shown(value) for name, value in values.items()},
        "seed": run.seed,
        "epochs": last.epoch,
        **{name: getattr(last, name) for name in MEASURES},
        "step_ms": run.step_ms,
        "parameters": run.parameters,
        "outcome": run.outcome,
        **row.versions,
        "date": row.date,
    }
