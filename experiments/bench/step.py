"""Benchmark of training steps, measured against the same network without a method, in one run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.bench.table import Measurements
from experiments.bench.timing import Call, counted, in_turn
from experiments.config import Config
from experiments.data.bundled import CHARACTERS, LENGTH
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.methods.table import METHODS, find_methods
from experiments.models.registry import takes_tokens
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.state import Batch
from experiments.training.trainer import Trainer, make_trainer

BASELINE = "none"
CONTROL = "none (control)"
#: The shape of an image, and the number of classes.
IMAGE, CLASSES = (32, 32, 3), 10


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


def bench_step(flags: Any) -> Measurements:
    """Times of training steps over those of none, interleaved, with none twice as a control."""
    methods = [method for method in find_methods(flags.methods) if method.name != BASELINE]
    batch = random_batch(flags.batch_size, flags.model)
    costs = measure_steps(methods, config_of(flags), batch, flags.repeats)
    return Measurements(
        StepCost._fields,
        costs,
        f"Ratios are medians over {flags.repeats} rounds [quartiles]; the control says how much "
        "of a ratio is noise.",
    )


def config_of(flags: Any) -> Config:
    """Returns the configuration of the network and the batch size that the flags name."""
    names = ("model", "depth", "width", "channels", "batch_size")
    return Config(**{name: getattr(flags, name) for name in names})


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
