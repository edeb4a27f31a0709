"""Tables of methods on questions that no paper claims: baselines, depth, settings."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.analysis.measures import factor, is_fraction
from experiments.analysis.statistics import mean_and_deviation
from experiments.reading import reading
from experiments.training.fit import DIVERGED
from experiments.verdicts.claim import read
from experiments.verdicts.sides import WANTED, Row, outcome_of, rows_of
from experiments.verdicts.sources import table_of


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        title: the heading.
        results: the csv file.
        measure: the column of the csv file: a fraction, or a loss.
    """

    title: str
    results: str
    measure: str = "test_accuracy"


class Beside(NamedTuple):
    """A table with one row per method, over the seeds; fractions in percent.

    Attributes:
        title: the title of its section.
        note: a description of the runs.
        columns: at least one column.
        picture: the path of a picture, or empty.
    """

    title: str
    note: str
    columns: tuple[Column, ...]
    picture: str = ""

    def parts(self, folder: Path) -> list[str]:
        """Returns the paragraphs of the section."""
        picture = [f"![{self.title}]({self.picture})"] if self.picture else []
        return [f"## {self.title}", self.note, _table(self.columns, folder), *picture]


@cache
def tables() -> tuple[Beside, ...]:
    """Returns all tables, in the order of the page."""
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
                runs = [row for row in rows if row["method"] == method]
                cells.setdefault(method, {})[column] = _cell(runs, column.measure)
    lines = [(name, *(row.get(column, "") for column in columns)) for name, row in cells.items()]
    return table_of(("method", *(column.title for column in columns)), lines)


def _cell(rows: list[Row], measure: str) -> str:
    """Returns the mean, and the learning rates that were chosen."""
    rates = "/".join(
        dict.fromkeys(f"{float(row['learning_rate']):g}" for row in rows if "learning_rate" in row)
    )
    return f"{level_of(rows, measure)}{f' ({rates})' if rates else ''}"


def level_of(rows: list[Row], measure: str = "test_accuracy") -> str:
    """Returns a measure of the runs that did not diverge, and the number of lost runs.

    The accuracy of a diverged run is that of its first class, and says nothing.
    """
    digits = ".2f" if is_fraction(measure) else ".4f"
    values = [factor(measure) * float(row[measure]) for row in rows if outcome_of(row) != DIVERGED]
    level = mean_and_deviation(values, digits) if values else ""
    outcomes = [outcome for row in rows if (outcome := outcome_of(row))]
    lost = [f"{each} {outcomes.count(each)} of {len(rows)}" for each in dict.fromkeys(outcomes)]
    return ", ".join(filter(None, [level, *lost]))
