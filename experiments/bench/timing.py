"""Times of several functions, taken in turn, and what the compiler counts of them."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from experiments.progress import progress

Call = Callable[[], object]


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


def counted(compiled: jax.stages.Compiled | jax.stages.Lowered) -> tuple[float, float]:
    """The operations and the bytes accessed that the compiler counts; NaN where it does not."""
    costs = compiled.cost_analysis() or {}
    return costs.get("flops", float("nan")), costs.get("bytes accessed", float("nan"))
