"""Timing of functions in turn, and the costs of training steps."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.config import Config
from experiments.data.bundled import CHARACTERS, LENGTH
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.methods.table import METHODS
from experiments.models.registry import takes_tokens
from experiments.runs.progress import progress
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.state import Batch
from experiments.training.trainer import Trainer, make_trainer

Call = Callable[[], object]

BASELINE = "none"
CONTROL = "none (control)"
#: The shape of an image, and the number of classes.
IMAGE, CLASSES = (32, 32, 3), 10


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


class StepCost(NamedTuple):
    """Cost of a training step of one method.

    Attributes:
        method: its name.
        step_ms: the median time, in milliseconds.
        ratio: the median over rounds of its time over the baseline's in the same round.
        ratio_low: the lower quartile of those ratios.
        ratio_high: the upper quartile.
        gflops: 1e9 floating-point operations, as the compiler counts them.
        gbytes: 1e9 bytes read and written, as the compiler counts them.
    """

    method: str
    step_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    gflops: float
    gbytes: float


def random_batch(rows: int, model: str = "cnn9") -> Batch:
    """Returns random images, or characters for a transformer, with random labels, on the device."""
    random = np.random.default_rng(0)
    if takes_tokens(model):
        X, y = random.integers(0, len(CHARACTERS), (2, rows, LENGTH)).astype(np.int32)
    else:
        X = random.standard_normal((rows, *IMAGE), np.float32)
        y = random.integers(0, CLASSES, rows).astype(np.int32)
    inputs, labels = jax.device_put((X, y))
    return Batch(inputs, labels, jax.random.split(jax.random.key(0), rows))


def measure_steps(
    methods: Sequence[Method], config: Config, batch: Batch, repeats: int
) -> list[StepCost]:
    """Measures the costs of the baseline, the methods and the control."""
    timed = {each.name: each for each in (METHODS[BASELINE], *methods)}
    timed[CONTROL] = METHODS[BASELINE]
    steps = {name: compiled_step(each, config, batch) for name, each in timed.items()}
    times = in_turn({name: call for name, (call, _) in steps.items()}, repeats)
    return [_cost(name, times[name], times[BASELINE], steps[name][1]) for name in steps]


def compiled_step(method: Method, config: Config, batch: Batch) -> tuple[Call, jax.stages.Compiled]:
    """Compiles a method's step; each call continues from the state that the last one left."""
    trainer = trainer_of(method, config, batch)
    state = trainer.init(np.uint32(0), np.asarray(batch.X))
    compiled = AheadOfTime(trainer.step, donate_argnums=0).compile(state, batch)

    def step() -> object:
        nonlocal state
        state, metrics = compiled(state, batch)
        return state, metrics

    return step, compiled


def _cost(
    name: str, times: list[float], base: list[float], compiled: jax.stages.Compiled
) -> StepCost:
    ratios = np.quantile(np.divide(times, base), (0.5, 0.25, 0.75)).tolist()
    counts = (1e-9 * count for count in counted(compiled))
    return StepCost(name, float(np.median(times)), *ratios, *counts)


def trainer_of(method: Method, config: Config, batch: Batch) -> Trainer:
    """Returns a trainer of the method for batches like this one."""
    X, y = map(np.asarray, batch[:2])
    config = config.changed(epochs=1, batch_size=len(X))
    classes = CLASSES if y.ndim == 1 else len(CHARACTERS)
    return make_trainer(method, config, Dataset(X, y, X, y, "random rows", classes))
