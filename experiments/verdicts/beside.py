"""Methods side by side in what no paper claims, and one asks first: rivals, depth, settings."""

from pathlib import Path
from typing import NamedTuple

from experiments.reading import reading
from experiments.reports.table import mean_and_deviation
from experiments.training.fit import DIVERGED
from experiments.verdicts.seen import WANTED, Row, outcome_of, rows_of
from experiments.verdicts.sources import table_of


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        title: what stands above it.
        results: the csv file.
        measure: which of its columns: a fraction, or a loss.
    """

    title: str
    results: str
    measure: str = "test_accuracy"


class Beside(NamedTuple):
    """A table: a row a method, over the seeds; fractions in percent.

    Attributes:
        title: of its section.
        note: what was trained.
        columns: at least one.
        picture: that shows more, or none.
    """

    title: str
    note: str
    columns: tuple[Column, ...]
    picture: str = ""

    def parts(self, folder: Path) -> list[str]:
        """The section's parts."""
        picture = [f"![{self.title}]({self.picture})"] if self.picture else []
        return [f"## {self.title}", self.note, _table(self.columns, folder), *picture]


_RIVALS = "rivals/results.csv"
_TUNED = "each method at the learning rate that did best on held-out training rows (in brackets)"

TABLES = (
    Beside(
        "Beside the rivals",
        f"CNN-9 of 8 channels on 2,000 photographs, 30 epochs, three seeds; {_TUNED}. nero, "
        "hyperball and adamp (with SGD, which is SGDP) are other authors' constraints of the same "
        "weights, agc their clipping.",
        (Column("test accuracy", _RIVALS), Column("training accuracy", _RIVALS, "train_accuracy")),
        "rivals/tuning.png",
    ),
    Beside(
        "Where depth breaks",
        "Plain ReLU networks, of layers as the columns say, on photographs of clothes "
        f"(Fashion-MNIST): test accuracies, {_TUNED}.",
        tuple(Column(f"{layers} layers", f"depth/{layers}/results.csv") for layers in (3, 10, 30)),
    ),
    Beside(
        "The predicted strength of gamma decay, and others",
        "Three ReLU layers of 256 on 2,000 photographs of clothes, batches of 16, where batch "
        "normalization's own regularization is strong; 20 epochs, three seeds: test losses, with "
        "the strength that theory predicts times what the columns say.",
        tuple(
            Column(f"times {each}", f"luo/strength/{each}/results.csv", "test_loss")
            for each in ("0", "0.3", "1", "3", "10")
        ),
    ),
)


def _table(columns: tuple[Column, ...], folder: Path) -> str:
    cells: dict[str, dict[Column, str]] = {}
    for column in columns:
        rows = rows_of(folder / column.results)
        with reading(folder / column.results, WANTED):
            for method in dict.fromkeys(row["method"] for row in rows):
                own = [row for row in rows if row["method"] == method]
                cells.setdefault(method, {})[column] = _cell(own, column.measure)
    # Nothing stands where nothing was trained.
    lines = [(name, *(own.get(column, "") for column in columns)) for name, own in cells.items()]
    return table_of(("method", *(column.title for column in columns)), lines)


def _cell(rows: list[Row], measure: str) -> str:
    """The mean, and the rates that were chosen."""
    rates = "/".join(
        dict.fromkeys(f"{float(row['learning_rate']):g}" for row in rows if "learning_rate" in row)
    )
    return f"{level_of(rows, measure)}{f' ({rates})' if rates else ''}"


def level_of(rows: list[Row], measure: str = "test_accuracy") -> str:
    """A measure of the runs that did not diverge, and how many were lost.

    The accuracy of one that did is that of its first class, and says nothing.
    """
    factor, digits = (1.0, ".4f") if measure.endswith("loss") else (100.0, ".2f")
    values = [factor * float(row[measure]) for row in rows if outcome_of(row) != DIVERGED]
    found = mean_and_deviation(values, digits) if values else ""
    outcomes = [said for row in rows if (said := outcome_of(row))]
    lost = [f"{said} {outcomes.count(said)} of {len(rows)}" for said in dict.fromkeys(outcomes)]
    return ", ".join(filter(None, [found, *lost]))
