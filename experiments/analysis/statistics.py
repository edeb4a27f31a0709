"""Means, spreads and intervals of paired differences; looks at 3, 6 and 10 seeds."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

#: The confidence of an interval.
CONFIDENCE = 0.95
#: The numbers of seeds at which the plan of the results looks, and the confidence at each look:
#: Pocock's constant for three looks has a nominal level of 0.0221, and 0.05 over all.
LOOKS, LOOK_CONFIDENCE = (3, 6, 10), 0.9779


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


#: The places of a difference: behind below -margin, level between -margin and margin, ahead above.
Place = Literal["ahead", "level or ahead", "level", "level or behind", "behind", "open"]

#: The places by `above` of an interval and its two bounds, -margin and margin.
PLACES: dict[tuple[bool | None, bool | None], Place] = {
    (True, True): "ahead",
    (True, None): "level or ahead",
    (True, False): "level",
    (None, False): "level or behind",
    (False, False): "behind",
    (None, None): "open",
}


def above(low: float, high: float, bound: float = 0.0) -> bool | None:
    """Returns True if an interval is above a bound, False if below; None if it contains it."""
    return True if low > bound else False if high < bound else None


def place(low: float, high: float, margin: float) -> Place:
    """Returns every place that an interval leaves to a difference: behind, level or ahead.

    The places exclude each other, so two intervals that hold the true difference share one. A word
    by the sign alone would call a difference of half a margin both level and behind.
    """
    return PLACES[above(low, high, -margin), above(low, high, margin)]


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


def wins(errors: Float[np.ndarray, "sets options"], digits: int = 3) -> Int[np.ndarray, " options"]:
    """Counts the data sets on which each option has the lowest error, ties included.

    If all options are tied, none wins. Errors are compared to the digits that are printed.
    """
    # Rounded twice, because some means end in half a digit up to the last bits of a sum.
    errors = np.round(np.round(errors, 9), digits)
    is_best = errors == errors.min(1, keepdims=True)
    return (is_best & ~is_best.all(1, keepdims=True)).sum(0)


def mean_and_deviation(values: Sequence[float] | Sequence[np.floating[Any]], form: str) -> str:
    """Formats ``mean ± sample standard deviation``; a single value without deviation."""
    mean = format(np.mean(values), form)
    if len(values) == 1:
        return mean
    # NumPy's deviation propagates a diverged run's NaN; the standard library's raises.
    return f"{mean} ± {np.std(values, ddof=1):{form.lstrip('+')}}"


def mean_and_interval(
    values: Float[np.ndarray, " n"],
    form: str,
    unit: str = "",
    ends: tuple[float, float] | None = None,
) -> str:
    """Formats ``mean unit [low, high]``, the interval of the mean; empty without values."""
    if not len(values):
        return ""
    low, high = ends or interval(values)
    return f"{values.mean():{form}}{unit} [{low:{form}}, {high:{form}}]"
