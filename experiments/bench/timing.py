"""Timing of several functions in turn, and the compiler's counts of operations and bytes."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from experiments.runs.progress import progress

Call = Callable[[], object]


def milliseconds(call: Call) -> float:
    """Returns the milliseconds that a call takes, until its results are computed."""
    began = time.perf_counter()
    jax.block_until_ready(call())
    return 1e3 * (time.perf_counter() - began)


def in_turn(
    calls: Mapping[str, Call], rounds: int, measure: Callable[[Call], Any] = milliseconds
) -> dict[str, list[Any]]:
    """Measures every call once per round, after one call of each to warm up.

    Whatever slows the machine down for a while slows all calls, so ratios within a round stay
    right. Each round has its own random order, because a call depends on the one before it.
    """
    random = np.random.default_rng(0)
    measured: dict[str, list[Any]] = {name: [] for name in calls}
    with progress(len(calls) * (rounds + 1)) as (advance, _):
        for name, call in calls.items():
            milliseconds(call)
            advance(f"warmed up {name}")
        for _ in range(rounds):
            for name in random.permutation(list(calls)).tolist():
                measured[name].append(measure(calls[name]))
                advance(name)
    return measured


def counted(compiled: jax.stages.Compiled | jax.stages.Lowered) -> tuple[float, float]:
    """Returns the operations and the bytes that the compiler counts; NaN if it counts none."""
    costs = compiled.cost_analysis() or {}
    return costs.get("flops", float("nan")), costs.get("bytes accessed", float("nan"))
