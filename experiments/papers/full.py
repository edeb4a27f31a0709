"""The cells of the full presets, and the properties that follow from shapes, without training."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from experiments.analysis.table import Table
from experiments.config import Config
from experiments.methods.method import Method
from experiments.methods.optimizer import schedule_of
from experiments.papers.grid import Cell, Protocol
from experiments.papers.item import Item
from experiments.papers.training import chosen, config_of, method_of
from experiments.training.epoch import steps_per_epoch
from experiments.training.trainer import network_of
from jaxnorm import parameter_count
from jaxnorm.nnx import Functional, functionalize


class Shape(NamedTuple):
    """Shape of a published dataset.

    Attributes:
        row: the shape of one input.
        rows: the number of training rows.
        classes: the number of classes.
    """

    row: tuple[int, ...]
    rows: int
    classes: int


#: The datasets by their names in --data-dir; SVHN with its extra images.
SHAPES: Mapping[str, Shape] = {
    "cifar10": Shape((32, 32, 3), 50_000, 10),
    "cifar100": Shape((32, 32, 3), 50_000, 100),
    "svhn": Shape((32, 32, 3), 73_257 + 531_131, 10),
    "tiny-imagenet": Shape((64, 64, 3), 100_000, 200),
    "imagenet": Shape((224, 224, 3), 1_281_167, 1000),
    "imagenet32": Shape((32, 32, 3), 1_281_167, 1000),
    "modelnet40": Shape((1024, 3), 9_843, 40),
}


class Full(NamedTuple):
    """A cell of a full preset.

    Attributes:
        item: the item's name.
        cell: the cell.
        setting: the protocol with the cell's changes.
    """

    item: str
    cell: Cell
    setting: Protocol

    @property
    def shape(self) -> Shape:
        """The shape of the cell's dataset."""
        return SHAPES[self.cell.dataset]

    @property
    def row(self) -> str:
        """The shape of one input, in words."""
        return " x ".join(map(str, self.shape.row))

    @property
    def config(self) -> Config:
        """The configuration of the cell's training."""
        return config_of(self.setting)

    @property
    def method(self) -> Method:
        """The method of the cell."""
        return method_of(self.cell, self.setting)

    @property
    def parameters(self) -> int:
        """The number of parameters of the cell's network."""
        return parameters_of(self.method, self.config, self.shape.row, self.shape.classes)

    @property
    def steps(self) -> int:
        """The number of steps of the whole training."""
        rows = min(self.setting.rows or self.shape.rows, self.shape.rows - self.setting.held_out)
        return self.setting.epochs * steps_per_epoch(rows, self.setting.batch_size)

    @property
    def rates(self) -> list[float]:
        """The learning rates of the first step and of the last one."""
        rate_of = schedule_of(self.config, self.steps)
        return [float(rate_of(jnp.int32(step))) for step in (0, self.steps - 1)]


def full_cells(item: Item) -> list[Full]:
    """Returns the cells that the full preset of an item trains; none if it is not a table."""
    full = item.presets["full"].settings
    cells = chosen(item.grid, full) if item.grid else []
    return [Full(item.name, cell, full.changed(**cell.changes)) for cell in cells]


def functional_of(method: Method, config: Config, row: tuple[int, ...], classes: int) -> Functional:
    """Returns a method's network, in shapes alone."""
    network = partial(network_of, method, config, row, classes)
    return functionalize(nnx.eval_shape(lambda: network(jax.random.key(0))))


def parameters_of(method: Method, config: Config, row: tuple[int, ...], classes: int) -> int:
    """Counts the parameters of a method's network."""
    return parameter_count(functional_of(method, config, row, classes).params)


def dry_table(item: Item) -> Table:
    """Lists one cell of each combination of network, dataset, length and rate."""
    kinds: dict[tuple[object, ...], Full] = {}
    for each in full_cells(item):
        c = each.config
        kind = c.model, each.cell.dataset, c.epochs, c.batch_size, c.learning_rate
        kinds.setdefault(kind, each)
    rows = [
        (
            *(each.cell.name, each.setting.model, each.row),
            *(f"{each.parameters:,}", f"{each.steps:,}", *(f"{rate:.3g}" for rate in each.rates)),
        )
        for each in kinds.values()
    ]
    return ("cell", "network", "input", "parameters", "steps", "first rate", "last rate"), rows
