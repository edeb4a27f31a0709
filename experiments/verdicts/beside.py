"""Methods side by side in what no paper claims, and one asks first: rivals, depth, settings."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.reading import reading
from experiments.reports.table import mean_and_deviation
from experiments.runs.measures import factor, is_fraction
from experiments.training.fit import DIVERGED
from experiments.verdicts.claim import read
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


@cache
def tables() -> tuple[Beside, ...]:
    """All of them, in the order of the page."""
    return tuple(
        Beside(**{**each, "columns": tuple(Column(**column) for column in each["columns"])})
        for each in read("tables.toml")["beside"]
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
    digits = ".2f" if is_fraction(measure) else ".4f"
    values = [factor(measure) * float(row[measure]) for row in rows if outcome_of(row) != DIVERGED]
    found = mean_and_deviation(values, digits) if values else ""
    outcomes = [said for row in rows if (said := outcome_of(row))]
    lost = [f"{said} {outcomes.count(said)} of {len(rows)}" for said in dict.fromkeys(outcomes)]
    return ", ".join(filter(None, [found, *lost]))
