"""A table of trainings as data: a protocol, rows, columns, and the claims of the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from experiments.config import Config

#: Measures of the last epoch; ``early_accuracy`` is the mean test accuracy of the first epochs, and
#: ``early_change`` its mean change from one epoch to the next.
Measure = (
    Literal["test_accuracy", "train_accuracy", "test_loss", "train_loss"]
    | Literal["early_accuracy", "early_change", "class_accuracy", "top5_accuracy"]
)

#: Fields of the protocol by name, among them the settings of the method.
Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Protocol(Config):
    """Training of every cell of a table, unless the cell changes a field; reports list all fields.

    The seed draws ``train_rows`` and ``test_rows``, after the rows that are held out.

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
        last: the epochs at the end over which measures are averaged.
        scores: further measures of the trained network: names of `SCORES`.
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
    last: int = 1
    scores: tuple[str, ...] = ()
    seeds: int = 3
    only_rows: tuple[str, ...] = ()
    only_columns: tuple[str, ...] = ()


#: The protocol of the papers' tables of images, unless a table says otherwise.
PAPER = Protocol(
    model="cnn9", channels=64, epochs=200, batch_size=128, learning_rate=0.1, weight_decay=5e-4
)

#: Factors of the first learning rate, each from a share of the training on.
Drops = tuple[tuple[float, float], ...]


def drops(epochs: int, factors: Mapping[float, float]) -> Drops:
    """Returns a schedule of factors of the first learning rate, each from an epoch on."""
    return tuple((epoch / epochs, factor) for epoch, factor in factors.items())


def decays(epochs: int, every: int, by: float, least: float = 0.0) -> Drops:
    """Returns a schedule that multiplies the rate by a factor every few epochs."""
    at = range(every, epochs, every)
    return drops(epochs, {epoch: max(by ** (epoch // every), least) for epoch in at})


class Row(NamedTuple):
    """A row of a table: a method, and its changes of the protocol."""

    method: str
    changes: Mapping[str, Any] = {}


def rows_named(*names: str, **changes: Any) -> dict[str, Row]:
    """Returns rows that have the names of their methods in capitals, with the same changes."""
    return {name: Row(name.lower(), changes) for name in names}


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        dataset: the data: a name in --data-dir, or "" for the only one there.
        reported: the paper's numbers in the order of the rows, in the unit of the table; None where
            the paper has no number, and empty if it has none at all.
        changes: the column's changes of the protocol; they win over those of the row.
        also: the paper's numbers of further measures, by name: losses in nats, others in percent.
    """

    dataset: str
    reported: Sequence[float | None] = ()
    changes: Mapping[str, Any] = {}
    also: Mapping[str, Sequence[float]] = {}


class Cell(NamedTuple):
    """One entry of a table, of the row and column of those names."""

    row: str
    method: str
    column: str = ""
    reported: float | None = None
    dataset: str = ""
    changes: Mapping[str, Any] = {}
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


def claims(better: str, *worse: str, **fields: Any) -> list[Ordering]:
    """Returns the claims that a row is better than each of the others."""
    return [Ordering(better, each, **fields) for each in worse]


@dataclass(frozen=True)
class Grid:
    """The cells of a table, and the paper's claims about them.

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

    def chosen(self, protocol: Protocol) -> list[Cell]:
        """Returns the cells that a protocol trains."""
        rows, columns = protocol.only_rows, protocol.only_columns
        return [
            cell
            for cell in self.cells
            if (not rows or cell.row in rows) and (not columns or cell.column in columns)
        ]


def cells_of(rows: Mapping[str, Row], columns: Mapping[str, Column]) -> tuple[Cell, ...]:
    """Returns the cell of each row in each column, column after column."""
    return tuple(
        Cell(
            row,
            method,
            column,
            reported[index] if reported else None,
            dataset,
            {**own, **shared},
            {name: values[index] for name, values in also.items()},
        )
        for column, (dataset, reported, shared, also) in columns.items()
        for index, (row, (method, own)) in enumerate(rows.items())
    )
