"""A table of trainings as data: cells, a protocol, and the orderings that the paper reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from experiments.config import Config

#: Of the last epoch; or, of the first epochs, the mean test accuracy, or its mean change from one
#: epoch to the next.
Measure = (
    Literal["test_accuracy", "train_accuracy", "test_loss", "train_loss"]
    | Literal["early_accuracy", "early_change", "class_accuracy", "top5_accuracy"]
)


@dataclass(frozen=True)
class Protocol(Config):
    """How every cell of a table is trained, unless the cell says otherwise; all of it is reported.

    Attributes:
        growing_noise: the noise of the last layer for methods with noise, growing from layer to
            layer; 0 for the methods' own, the same in every layer.
        squared_radius: c of methods that keep weights on a sphere; 0 for the methods' own.
        policies: the file in --data-dir with published sub-policies of Fast AutoAugment, where the
            augmentation has them; empty for sub-policies that are drawn.
        rate_scale: what the learning rate is multiplied by, in cells of other batch sizes.
        side: the side in pixels of squares that are cropped out of pictures of any size, which are
            read while they are used; 0 for data that are read whole.
        held_out: the training rows that are left out first, as some papers do for validation.
        rows: the training rows that are used, or 0 for all.
        last: the epochs at the end over which measures are averaged.
        scores: what is measured of the trained network besides: names of `SCORES`.
        test_rows: the test rows that are used, or 0 for all.
        seeds: the number of seeds.
        only_rows: the rows of the table that are trained; empty for all.
        only_columns: likewise its columns.
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


#: What the papers' tables of images have in common, unless they say otherwise.
PAPER = Protocol(
    model="cnn9", channels=64, epochs=200, batch_size=128, learning_rate=0.1, weight_decay=5e-4
)


#: The datasets in --data-dir, by the names of the papers' columns.
CIFAR = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}


class Cell(NamedTuple):
    """One entry of a table.

    Attributes:
        row: its row, which also names it in orderings.
        method: its name.
        column: its column: a dataset, a network, a batch size.
        reported: the paper's number, in the unit of the table; None where it has none.
        dataset: the data: a name in --data-dir, or "" for the only one there.
        changes: fields of the protocol that differ in this cell.
        overrides: settings of the method that differ, fields of
            `experiments.methods.overrides.Overrides`.
        also: the paper's numbers of what the table shows beside: losses in nats, others in percent.
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
        """Row and column."""
        return f"{self.row}, {self.column}" if self.column else self.row


class Ordering(NamedTuple):
    """One statement of the paper: a row is better than another, in every column or in one.

    Attributes:
        better: the row that is.
        worse: the one that it is compared with.
        column: where; None for every column that has both.
        measure: of what; accuracies should be higher, losses and changes lower.
        margin: the points, or nats, by which the better row may still be worse; ours.
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
        orderings: what the paper says of them.
        measure: what the table shows.
        as_error: whether an accuracy is shown as an error, as the paper does.
        beside: what else it shows, after that: measures, and names of `SCORES`.
        literature: rows that the paper cites, by name, in the unit of the table.
    """

    cells: tuple[Cell, ...]
    orderings: tuple[Ordering, ...] = ()
    measure: Measure = "test_accuracy"
    as_error: bool = False
    beside: tuple[str, ...] = ()
    literature: Mapping[str, float] = field(default_factory=dict)
