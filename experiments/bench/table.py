"""What a benchmark measured: a row for each thing that was compared, written and shown alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.errors import UserError
from experiments.reports.csv import write_csv
from experiments.reports.show import show_table
from experiments.reports.table import Table

#: What the names of a measure's quartiles end with.
LOW, HIGH = "_low", "_high"


class Measured(NamedTuple):
    """The rows of a benchmark.

    Attributes:
        columns: their names; NAME_low and NAME_high are the quartiles of NAME.
        rows: text and numbers.
        note: how to read them, in whole sentences.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str


class Missing(UserError):
    """A benchmark needs what this machine or this call does not have."""


def write_and_show(found: Measured, name: str, out: Path | None) -> None:
    """Prints the rows, says how to read them, and writes them to a csv file in the folder."""
    show_table(shown(found))
    print(f"\n{found.note}")
    if out is not None:
        write_csv(
            out / f"{name}.csv", found.columns, [[_text(x, 6) for x in row] for row in found.rows]
        )
        print(f"Written to {out}: {name}.csv.")


def shown(found: Measured) -> Table:
    """The rows as a table, quartiles in brackets behind their median."""
    names = [name for name in found.columns if not name.endswith((LOW, HIGH))]
    cells = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    return [name.replace("_", " ") for name in names], [
        [_cell(row, name) for name in names] for row in cells
    ]


def _cell(row: dict[str, object], name: str) -> str:
    names = [each for each in (name, name + LOW, name + HIGH) if each in row]
    middle, *quartiles = (_text(row[each], 4) for each in names)
    return f"{middle} [{', '.join(quartiles)}]" if quartiles else middle


def _text(value: object, digits: int) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
