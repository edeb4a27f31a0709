"""Benchmark of the papers' tables: their cost at the papers' own size, from shapes alone."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.analysis.measures import GPU_SPEED, GPU_STEPS
from experiments.bench.table import Measurements
from experiments.config import Config
from experiments.methods.table import METHODS
from experiments.papers.items import ITEMS
from experiments.papers.sizes import Full, full_cells, functional_of
from experiments.runs.timing import counted

#: A forward pass, and a backward pass of about twice its cost.
PASSES = 3


class Cost(NamedTuple):
    """Cost of a cell's runs at the paper's size.

    Attributes:
        item: the table or figure.
        row: the cell's row.
        column: its column.
        network: the name of the model.
        gflops_row: operations of a forward pass of one input, in 1e9, to four digits.
        batch_size: rows per step.
        steps: steps per training.
        seeds: the number of trainings.
        hours: hours of one training on one GPU, to three digits.
    """

    item: str
    row: str
    column: str
    network: str
    gflops_row: str
    batch_size: int
    steps: int
    seeds: int
    hours: str


def bench_papers(flags: Any) -> Measurements:
    """GPU hours of a run of every cell of the papers' tables, estimated from its operations."""
    costs = [cost_of(each) for item in ITEMS.values() for each in full_cells(item)]
    note = (
        f"Hours per seed, at {GPU_SPEED:.3g} operations and at most {GPU_STEPS:g} steps per second."
    )
    return Measurements(Cost._fields, costs, note)


def cost_of(full: Full) -> Cost:
    """Estimates the cost of one cell; nothing is trained."""
    config, shape, steps = full.config, full.shape, full.steps
    operations = forward_operations(config.model, config.channels, shape.row, shape.classes)
    hours = hours_of(operations, config.batch_size, steps)
    return Cost(
        *(full.item, full.cell.row, full.cell.column, config.model, f"{operations / 1e9:.4g}"),
        *(config.batch_size, steps, full.setting.seeds, f"{hours:.3g}"),
    )


def hours_of(operations: float, batch_size: int, steps: int) -> float:
    """Returns the hours of a training.

    Args:
        operations: operations of the forward pass of one row.
        batch_size: rows per step.
        steps: steps of the training.
    """
    seconds = max(PASSES * operations * batch_size / GPU_SPEED, 1 / GPU_STEPS)
    return steps * seconds / 3600


@cache
def forward_operations(model: str, channels: int, row: tuple[int, ...], classes: int) -> float:
    """Counts the operations of a plain network on one row, as XLA counts the program."""
    config = Config(model=model, channels=channels)
    functional = functional_of(METHODS["none"], config, row, classes)

    def forward(params: Any, state: Any, X: jax.Array) -> jax.Array:
        logits: jax.Array = functional.apply(params, state, X, train=False)[0]
        return logits

    X = jax.ShapeDtypeStruct((1, *row), jnp.float32)
    return counted(jax.jit(forward).lower(functional.params, functional.state, X))[0]
