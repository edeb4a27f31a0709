"""The table of a benchmark: one row for each thing that was compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.analysis.csv import write_csv
from experiments.analysis.table import Table, show_table

#: The endings of the names of a measure's quartiles.
LOW, HIGH = "_low", "_high"


class Measurements(NamedTuple):
    """The rows of a benchmark.

    Attributes:
        columns: the names of the columns; NAME_low and NAME_high are the quartiles of NAME.
        rows: rows of text and numbers.
        note: an explanation, in whole sentences.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str


def write_and_show(measured: Measurements, name: str, out: Path) -> None:
    """Prints the rows and the note, and writes the rows to a csv file in the folder."""
    show_table(shown(measured))
    print(f"\n{measured.note}")
    rows = [[_text(value, 6) for value in row] for row in measured.rows]
    write_csv(out / f"{name}.csv", measured.columns, rows)
    print(f"Written to {out}: {name}.csv.")


def shown(measured: Measurements) -> Table:
    """Returns the rows as a table, quartiles in brackets behind their median."""
    names = [name for name in measured.columns if not name.endswith((LOW, HIGH))]
    cells = [dict(zip(measured.columns, row, strict=True)) for row in measured.rows]
    return [name.replace("_", " ") for name in names], [
        [_cell(row, name) for name in names] for row in cells
    ]


def _cell(row: dict[str, object], name: str) -> str:
    names = [each for each in (name, name + LOW, name + HIGH) if each in row]
    middle, *quartiles = (_text(row[each], 4) for each in names)
    return f"{middle} [{', '.join(quartiles)}]" if quartiles else middle


def _text(value: object, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
