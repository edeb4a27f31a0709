"""A table of trainings as data: cells, a protocol, and the orderings that the paper reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Measure = Literal["test_accuracy", "train_accuracy", "test_loss", "train_loss"]


class Protocol(NamedTuple):
    """How every cell of a table is trained, unless the cell says otherwise; all of it is reported.

    Attributes:
        model: the network.
        activation: its activation.
        depth: the hidden layers of the mlp.
        width: the units of each.
        channels: of a convolutional network's first stage; 64 is the papers'.
        epochs: the passes over the training rows.
        batch_size: the rows of a step.
        optimizer: sgd (momentum 0.9) or adam.
        learning_rate: the initial one.
        drops: (fraction of training, factor on the initial rate) from then on; empty for half a
            cosine to 0.
        weight_decay: on kernels.
        growing_noise: the noise of the last layer for methods with noise, growing from layer to
            layer; 0 for the methods' own, the same in every layer.
        augment: how images are augmented, by name; none for not at all.
        policies: the file in --data-dir with published sub-policies of Fast AutoAugment, where the
            augmentation has them; empty for sub-policies that are drawn.
        rows: the training rows that are used, or 0 for all.
        test_rows: the test rows that are used, or 0 for all.
        seeds: the number of seeds.
        only_rows: the rows of the table that are trained; empty for all.
        only_columns: likewise its columns.
    """

    model: str = "cnn9"
    activation: str = "relu"
    depth: int = 3
    width: int = 256
    channels: int = 64
    epochs: int = 200
    batch_size: int = 128
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.1
    drops: tuple[tuple[float, float], ...] = ()
    weight_decay: float = 5e-4
    growing_noise: float = 0.0
    augment: str = "none"
    policies: str = ""
    rows: int = 0
    test_rows: int = 0
    seeds: int = 3
    only_rows: tuple[str, ...] = ()
    only_columns: tuple[str, ...] = ()


class Cell(NamedTuple):
    """One entry of a table.

    Attributes:
        row: its row, which also names it in orderings.
        method: its name.
        column: its column: a dataset, a network, a batch size.
        reported: the paper's number, in the unit of the table; None where it has none.
        dataset: the data: a name in --data-dir, or "" for the only one there.
        changes: fields of the protocol that differ in this cell.
        overrides: settings of the method that differ, fields of `experiments.methods.Overrides`.
    """

    row: str
    method: str
    column: str = ""
    reported: float | None = None
    dataset: str = ""
    changes: Mapping[str, Any] = {}
    overrides: Mapping[str, Any] = {}

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
        measure: of what; accuracies should be higher, losses lower.
    """

    better: str
    worse: str
    column: str | None = None
    measure: Measure = "test_accuracy"


@dataclass(frozen=True)
class Grid:
    """A table of trainings.

    Attributes:
        cells: its entries.
        orderings: what the paper says of them.
        measure: what the table shows.
        as_error: whether an accuracy is shown as an error, as the paper does.
    """

    cells: tuple[Cell, ...]
    orderings: tuple[Ordering, ...] = ()
    measure: Measure = "test_accuracy"
    as_error: bool = False
