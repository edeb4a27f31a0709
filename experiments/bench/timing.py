"""Times of several functions, taken in turn."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.progress import progress


class Ratio(NamedTuple):
    """A median of ratios of times, with its quartiles."""

    middle: float
    low: float
    high: float


def in_turn(names: Iterable[str], rounds: int) -> Iterator[str]:
    """Every name once a round, each round in an order of its own: who runs after whom matters.

    What slows the machine down for a while slows all of them, and the ratios within a round stay.
    """
    random, everyone = np.random.default_rng(0), list(names)
    for _ in range(rounds):
        yield from random.permutation(everyone).tolist()


def times_in_turn(
    subjects: Mapping[str, Callable[[], object]], repeats: int
) -> dict[str, list[float]]:
    """Milliseconds of each call, in the order of `in_turn`.

    Each subject is called once before, and its results are waited for.
    """
    times: dict[str, list[float]] = {name: [] for name in subjects}
    with progress(len(subjects) * (repeats + 1)) as (advance, _):
        for name, subject in subjects.items():
            jax.block_until_ready(subject())
            advance(f"warmed up {name}")
        for name in in_turn(subjects, repeats):
            began = time.perf_counter()
            jax.block_until_ready(subjects[name]())
            times[name].append(1e3 * (time.perf_counter() - began))
            advance(name)
    return times


def ratio(times: list[float], base: list[float]) -> Ratio:
    """The times over those of a baseline, round by round."""
    low, middle, high = np.quantile(np.divide(times, base), (0.25, 0.5, 0.75))
    return Ratio(float(middle), float(low), float(high))


def median_and_ratio(times: list[float], base: list[float]) -> tuple[float, ...]:
    """The median of the times, and their ratio to a baseline's with its quartiles."""
    return statistics.median(times), *ratio(times, base)


#: A compiled function, and what it is called with.
Compiled = tuple[jax.stages.Compiled, tuple[Any, ...]]


def costs_in_turn(
    compiled: Mapping[str, Compiled], base: str, repeats: int
) -> list[tuple[Any, ...]]:
    """By name: milliseconds, their ratio to the base's, and 10^9 operations and bytes."""
    calls = {name: partial(run, *arguments) for name, (run, arguments) in compiled.items()}
    times = times_in_turn(calls, repeats)
    return [
        (name, *median_and_ratio(times[name], times[base]), *(1e-9 * n for n in counted(run)))
        for name, (run, _) in compiled.items()
    ]


def counted(compiled: jax.stages.Compiled) -> tuple[float, float]:
    """The operations and the bytes accessed that the compiler counts."""
    costs = compiled.cost_analysis() or {}
    return costs.get("flops", float("nan")), costs.get("bytes accessed", float("nan"))
