"""Times of several functions, taken in turn, and what the compiler counts of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.progress import progress

Call = Callable[[], object]


class Timed(NamedTuple):
    """What is timed.

    Attributes:
        call: one call of it.
        base: the name of the subject whose times its own are divided by.
        compiled: the program that it runs, where operations and bytes are counted.
    """

    call: Call
    base: str
    compiled: jax.stages.Compiled | None = None


class Cost(NamedTuple):
    """What a subject costs.

    Attributes:
        ms: the median of its times, in milliseconds.
        ratio: the median over rounds of its time over the base's in the same round.
        ratio_low: the lower quartile of those ratios.
        ratio_high: the upper quartile.
        gflops: 1e9 floating-point operations, as the compiler counts them.
        gbytes: 1e9 bytes read and written, as the compiler counts them.
    """

    ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    gflops: float
    gbytes: float

    @property
    def ratios(self) -> tuple[float, float, float]:
        """The ratio with its quartiles."""
        return self.ratio, self.ratio_low, self.ratio_high


def costs_in_turn(subjects: Mapping[str, Timed], repeats: int) -> dict[str, Cost]:
    """The cost of each subject, all of them timed in turn."""
    times = in_turn({name: each.call for name, each in subjects.items()}, repeats)
    return {
        name: _cost(times[name], times[each.base], each.compiled) for name, each in subjects.items()
    }


def milliseconds(call: Call) -> float:
    """How long a call takes, with its results waited for."""
    began = time.perf_counter()
    jax.block_until_ready(call())
    return 1e3 * (time.perf_counter() - began)


def in_turn(
    calls: Mapping[str, Call], rounds: int, measure: Callable[[Call], Any] = milliseconds
) -> dict[str, list[Any]]:
    """What is measured of every call once a round, after a first call of each that is not measured.

    What slows the machine down for a while slows all of them, and the ratios within a round stay.
    Each round has an order of its own, since it matters who runs after whom.
    """
    random = np.random.default_rng(0)
    found: dict[str, list[Any]] = {name: [] for name in calls}
    with progress(len(calls) * (rounds + 1)) as (advance, _):
        for name, call in calls.items():
            milliseconds(call)
            advance(f"warmed up {name}")
        for _ in range(rounds):
            for name in random.permutation(list(calls)).tolist():
                found[name].append(measure(calls[name]))
                advance(name)
    return found


def _cost(times: list[float], base: list[float], compiled: jax.stages.Compiled | None) -> Cost:
    low, middle, high = np.quantile(np.divide(times, base), (0.25, 0.5, 0.75)).tolist()
    counts = (1e-9 * count for count in counted(compiled))
    return Cost(statistics.median(times), middle, low, high, *counts)


def counted(compiled: jax.stages.Compiled | None) -> tuple[float, float]:
    """The operations and the bytes accessed that the compiler counts; NaN where it does not."""
    costs = (compiled and compiled.cost_analysis()) or {}
    return costs.get("flops", float("nan")), costs.get("bytes accessed", float("nan"))
