"""What the papers' tables cost at the papers' own size, from shapes alone."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.bench.table import Measured
from experiments.bench.timing import counted
from experiments.config import Config
from experiments.methods.table import METHODS
from experiments.papers.full import Full, full_cells, functional_of
from experiments.papers.registry import ITEMS

#: What one GPU is taken to do: operations a second, sustained, and small steps a second.
SPEED, STEPS = 15e12, 100.0

#: Forward, and about twice that backward.
PASSES = 3


class Cost(NamedTuple):
    """What the runs of a cell cost at the paper's size.

    Attributes:
        item: the table or figure.
        row: the cell's row.
        column: its column.
        network: what is trained.
        gflops_row: operations of a forward pass of one input, in thousand millions, to four digits.
        batch_size: the rows of a step.
        steps: of one training.
        seeds: the number of trainings.
        hours: of one training on one GPU, to three digits.
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


def bench_papers(flags: Any) -> Measured:
    """GPU hours of a run of every cell of the papers' tables, estimated from its operations."""
    costs = [cost_of(each) for item in ITEMS.values() for each in full_cells(item)]
    note = f"Of one seed, at {SPEED:.3g} operations and at most {STEPS:g} steps a second."
    return Measured(Cost._fields, costs, note)


def cost_of(full: Full) -> Cost:
    """That of one cell; nothing is trained."""
    config, shape, steps = full.config, full.shape, full.steps
    operations = forward_operations(config.model, config.channels, shape.row, shape.classes)
    hours = hours_of(operations, config.batch_size, steps)
    return Cost(
        *(full.item, full.cell.row, full.cell.column, config.model, f"{operations / 1e9:.4g}"),
        *(config.batch_size, steps, full.setting.seeds, f"{hours:.3g}"),
    )


def hours_of(operations: float, batch_size: int, steps: int) -> float:
    """The hours of a training.

    Args:
        operations: of the forward pass of one row.
        batch_size: the rows of a step.
        steps: of the training.
    """
    seconds = max(PASSES * operations * batch_size / SPEED, 1 / STEPS)
    return steps * seconds / 3600


@cache
def forward_operations(model: str, channels: int, row: tuple[int, ...], classes: int) -> float:
    """The floating-point operations of a plain network on one row, as XLA counts the program."""
    config = Config(model=model, channels=channels)
    functional = functional_of(METHODS["none"], config, row, classes)

    def forward(params: Any, state: Any, X: jax.Array) -> jax.Array:
        logits: jax.Array = functional.apply(params, state, X, train=False)[0]
        return logits

    X = jax.ShapeDtypeStruct((1, *row), jnp.float32)
    return counted(jax.jit(forward).lower(functional.params, functional.state, X))[0]
