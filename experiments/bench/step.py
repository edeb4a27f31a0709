"""Benchmark of training steps, measured against the same network without a method, in one run."""

from typing import Any

from experiments.bench.table import Measurements
from experiments.config import Config
from experiments.methods.table import find_methods
from experiments.runs.timing import BASELINE, StepCost, measure_steps, random_batch


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
