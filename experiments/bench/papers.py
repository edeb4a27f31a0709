"""What the papers' tables cost at the papers' own size, from shapes alone."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from experiments.bench.table import Measured
from experiments.config import Config
from experiments.methods.table import METHODS
from experiments.papers.dry_run import SHAPES, dry_run
from experiments.papers.grid import Cell, Protocol
from experiments.papers.item import Item
from experiments.papers.registry import ITEMS
from experiments.papers.training import config_of
from experiments.papers.trainings import chosen
from experiments.training.trainer import network_of
from jaxnorm.nnx import functionalize

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
        gflops_row: operations of a forward pass of one input, in thousand millions.
        batch_size: the rows of a step.
        steps: of one training.
        seeds: the number of trainings.
        hours: of one training on one GPU.
    """

    item: str
    row: str
    column: str
    network: str
    gflops_row: float
    batch_size: int
    steps: int
    seeds: int
    hours: float


def bench_papers(flags: Any) -> Measured:
    """GPU hours of a run of every cell of the papers' tables, estimated from its operations."""
    costs = [cost for item in ITEMS.values() for cost in costs_of(item)]
    note = f"Of one seed, at {SPEED:.3g} operations and at most {STEPS:g} steps a second."
    return Measured(Cost._fields, list(map(row_of, costs)), note)


def costs_of(item: Item) -> list[Cost]:
    """One for each cell of the full preset; none for what is no table of trainings."""
    if item.grid is None:
        return []
    full = item.presets["full"].settings
    return [cost_of(item.name, cell, full) for cell in chosen(item.grid, full)]


def cost_of(item: str, cell: Cell, full: Protocol) -> Cost:
    """That of one cell; nothing is trained."""
    setting = full.changed(**cell.changes)
    shape, config = SHAPES[cell.dataset], config_of(setting)
    steps, batch = dry_run(cell, full).steps, config.batch_size
    operations = forward_operations(config.model, config.channels, shape.row, shape.classes)
    hours = hours_of(operations, batch, steps)
    place = (item, cell.row, cell.column, config.model)
    return Cost(*place, operations / 1e9, batch, steps, setting.seeds, hours)


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
    network = nnx.eval_shape(
        lambda: network_of(METHODS["none"], config, row, classes, jax.random.key(0))
    )
    functional = functionalize(network)

    def forward(params: Any, state: Any, X: jax.Array) -> jax.Array:
        logits: jax.Array = functional.apply(params, state, X, train=False)[0]
        return logits

    X = jax.ShapeDtypeStruct((1, *row), jnp.float32)
    counted = jax.jit(forward).lower(functional.params, functional.state, X).cost_analysis()
    assert counted is not None, model
    return float(counted["flops"])


def row_of(cost: Cost) -> tuple[object, ...]:
    """As a row of papers.csv."""
    return (*cost[:4], f"{cost.gflops_row:.4g}", *cost[5:8], f"{cost.hours:.3g}")
