"""Sizes of the full presets' trainings, from shapes alone: data, steps, parameters."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
from flax import nnx

from experiments.config import Config
from experiments.methods.method import Method
from experiments.papers.grid import Cell, Protocol
from experiments.papers.item import Item
from experiments.papers.training import config_of, method_of
from experiments.training.epoch import steps_per_epoch
from experiments.training.trainer import network_of
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
        method: the cell's method.
    """

    item: str
    cell: Cell
    setting: Protocol
    method: Method

    @property
    def shape(self) -> Shape:
        """The shape of the cell's dataset."""
        return SHAPES[self.cell.dataset]

    @property
    def config(self) -> Config:
        """The configuration of the cell's training."""
        return config_of(self.setting)

    @property
    def steps(self) -> int:
        """The number of steps of the whole training."""
        rows = min(
            self.setting.train_rows or self.shape.rows, self.shape.rows - self.setting.held_out
        )
        return self.setting.epochs * steps_per_epoch(rows, self.setting.batch_size)


def full_cells(item: Item) -> list[Full]:
    """Returns the cells that the full preset of an item trains; none if it is not a table."""
    protocol = item.full.settings
    cells = item.grid.chosen(protocol) if item.grid else []
    settings = [protocol.changed(**cell.changes) for cell in cells]
    return [
        Full(item.name, cell, setting, method_of(cell.method, setting))
        for cell, setting in zip(cells, settings, strict=True)
    ]


def functional_of(method: Method, config: Config, row: tuple[int, ...], classes: int) -> Functional:
    """Returns a method's network, in shapes alone."""
    network = partial(network_of, method, config, row, classes)
    return functionalize(nnx.eval_shape(lambda: network(jax.random.key(0))))
