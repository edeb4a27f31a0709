"""Full presets without training: parameters, steps and learning rates, from shapes alone."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from experiments.config import Config
from experiments.methods.method import Method
from experiments.methods.optimizer import schedule_of
from experiments.papers.grid import Cell, Protocol
from experiments.papers.item import Item
from experiments.papers.training import config_of, method_of
from experiments.papers.trainings import chosen
from experiments.reports.table import Table
from experiments.training.epoch import steps_per_epoch
from experiments.training.trainer import network_of
from jaxnorm import parameter_count
from jaxnorm.nnx import functionalize


class Shape(NamedTuple):
    """What a published dataset has.

    Attributes:
        row: the shape of one input.
        rows: its training rows.
        classes: its classes.
    """

    row: tuple[int, ...]
    rows: int
    classes: int


#: By the names of --data-dir; SVHN with its extra images.
SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "cifar10": Shape((32, 32, 3), 50_000, 10),
        "cifar100": Shape((32, 32, 3), 50_000, 100),
        "svhn": Shape((32, 32, 3), 73_257 + 531_131, 10),
        "tiny-imagenet": Shape((64, 64, 3), 100_000, 200),
        "imagenet": Shape((224, 224, 3), 1_281_167, 1000),
        "imagenet32": Shape((32, 32, 3), 1_281_167, 1000),
        "modelnet40": Shape((1024, 3), 9_843, 40),
    }
)


class DryRun(NamedTuple):
    """What the training of a cell would be.

    Attributes:
        cell: its name.
        network: the network's.
        row: the shape of one input.
        parameters: their number.
        steps: of the whole training.
        first_rate: the learning rate of the first step.
        last_rate: that of the last one.
    """

    cell: str
    network: str
    row: tuple[int, ...]
    parameters: int
    steps: int
    first_rate: float
    last_rate: float


def dry_run(cell: Cell, protocol: Protocol) -> DryRun:
    """What one cell of a full preset would train; nothing is computed but its learning rates."""
    setting = protocol.changed(**cell.changes)
    shape, config = SHAPES[cell.dataset], config_of(setting)
    rows = min(setting.rows or shape.rows, shape.rows - setting.held_out)
    steps = config.epochs * steps_per_epoch(rows, config.batch_size)
    rates = [float(schedule_of(config, steps)(jnp.int32(step))) for step in (0, steps - 1)]
    count = parameters_of(method_of(cell, setting), config, shape.row, shape.classes)
    return DryRun(cell.name, config.model, shape.row, count, steps, *rates)


def parameters_of(method: Method, config: Config, row: tuple[int, ...], classes: int) -> int:
    """The number of parameters of a method's network, from shapes alone."""
    model = nnx.eval_shape(lambda: network_of(method, config, row, classes, jax.random.key(0)))
    return parameter_count(functionalize(model).params)


def dry_table(item: Item) -> Table:
    """The dry runs of one cell of each kind: of a network, dataset, length and rate."""
    full = item.presets["full"].settings
    kinds: dict[tuple[object, ...], Cell] = {}
    for cell in chosen(item.grid, full) if item.grid else []:
        own = config_of(full.changed(**cell.changes))
        kind = own.model, cell.dataset, own.epochs, own.batch_size, own.learning_rate
        kinds.setdefault(kind, cell)
    rows = []
    for cell in kinds.values():
        name, network, row, parameters, steps, *rates = dry_run(cell, full)
        sizes = " x ".join(map(str, row)), f"{parameters:,}", f"{steps:,}"
        rows.append((name, network, *sizes, *(f"{rate:.3g}" for rate in rates)))
    return ("cell", "network", "input", "parameters", "steps", "first rate", "last rate"), rows
