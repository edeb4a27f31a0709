"""A table of trainings as data: cells, a protocol, and the orderings that the paper reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from experiments.config import Config

#: Measures of the last epoch; ``early_accuracy`` is the mean test accuracy of the first epochs, and
#: ``early_change`` its mean change from one epoch to the next.
Measure = (
    Literal["test_accuracy", "train_accuracy", "test_loss", "train_loss"]
    | Literal["early_accuracy", "early_change", "class_accuracy", "top5_accuracy"]
)


@dataclass(frozen=True)
class Protocol(Config):
    """Training of every cell of a table, unless the cell changes a field; reports list all fields.

    Attributes:
        growing_noise: the noise of the last layer, growing from layer to layer; 0 for the methods'
            own noise, the same in every layer.
        squared_radius: c of methods that keep weights on a sphere; 0 for the methods' own.
        policies: the file in --data-dir with published sub-policies of Fast AutoAugment, if the
            augmentation has sub-policies; empty to draw them.
        rate_scale: a factor of the learning rate, for cells of other batch sizes.
        side: the side in pixels of the squares cropped out of streamed pictures; 0 for data in
            memory.
        held_out: the training rows that are left out first, as some papers do for validation.
        rows: the training rows that are used, or 0 for all.
        last: the epochs at the end over which measures are averaged.
        scores: further measures of the trained network: names of `SCORES`.
        test_rows: the test rows that are used, or 0 for all.
        seeds: the number of seeds.
        only_rows: the rows of the table that are trained; empty for all.
        only_columns: the columns of the table that are trained; empty for all.
    """

    growing_noise: float = 0.0
    squared_radius: float = 0.0
    policies: str = ""
    rate_scale: float = 1.0
    side: int = 0
    held_out: int = 0
    rows: int = 0
    test_rows: int = 0
    last: int = 1
    scores: tuple[str, ...] = ()
    seeds: int = 3
    only_rows: tuple[str, ...] = ()
    only_columns: tuple[str, ...] = ()


#: The default protocol of the papers' tables of images.
PAPER = Protocol(
    model="cnn9", channels=64, epochs=200, batch_size=128, learning_rate=0.1, weight_decay=5e-4
)


#: The datasets in --data-dir, by the names of the papers' columns.
CIFAR = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}


class Cell(NamedTuple):
    """One entry of a table.

    Attributes:
        row: its row, whose name orderings use.
        method: the name of the method.
        column: its column: a dataset, a network, a batch size.
        reported: the paper's number, in the unit of the table, or None.
        dataset: the data: a name in --data-dir, or "" for the only one there.
        changes: fields of the protocol that differ in this cell.
        overrides: settings of the method that differ, fields of
            `experiments.config.OF_PARTS`.
        also: the paper's numbers of further measures, by name: losses in nats, others in percent.
    """

    row: str
    method: str
    column: str = ""
    reported: float | None = None
    dataset: str = ""
    changes: Mapping[str, Any] = {}
    overrides: Mapping[str, Any] = {}
    also: Mapping[str, float] = {}

    @property
    def name(self) -> str:
        """The names of row and column."""
        return f"{self.row}, {self.column}" if self.column else self.row


class Ordering(NamedTuple):
    """A claim of the paper: a row is better than another, in every column or in one.

    Attributes:
        better: the better row.
        worse: the row that it is compared with.
        column: the column; None for every column that has both rows.
        measure: the measure; accuracies should be higher, losses and changes lower.
        margin: points or nats by which the better row may be worse; our choice.
    """

    better: str
    worse: str
    column: str | None = None
    measure: Measure = "test_accuracy"
    margin: float = 0.0


@dataclass(frozen=True)
class Grid:
    """A table of trainings.

    Attributes:
        cells: its entries.
        orderings: the paper's claims about them.
        measure: the measure of the table.
        as_error: if True, the table shows an accuracy as an error, as the paper does.
        beside: further measures, and names of `SCORES`.
        literature: numbers that the paper cites, by name, in the unit of the table.
    """

    cells: tuple[Cell, ...]
    orderings: tuple[Ordering, ...] = ()
    measure: Measure = "test_accuracy"
    as_error: bool = False
    beside: tuple[str, ...] = ()
    literature: Mapping[str, float] = field(default_factory=dict)
