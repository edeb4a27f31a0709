"""Reading tables: ``FILE.csv`` of numbers with a column of classes, as Polars reads them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float

from experiments.data.dataset import Dataset, make_dataset, number_labels
from experiments.data.doubts import ordering_columns
from experiments.data.reading import reading, refuse_too_large
from experiments.errors import UserError, check_known

#: Names of the column of classes, in any case.
LABELS = ("label", "class", "target", "y")

#: Truth values as pandas, R and spreadsheets write them, which are features of 1 and 0.
TRUTH = {"True": "1", "TRUE": "1", "true": "1", "False": "0", "FALSE": "0", "false": "0"}

#: Bytes of memory per byte of the file: its text, and the numbers in it.
WORKING_COPIES = 40

WAY_OUT = (
    "wanted a table in UTF-8 with commas between columns, or tabs in a .tsv file, decimal points, "
    "and a name above each column: save it so"
)


def load_csv(path: Path, seed: int, label: str | None = None) -> Dataset:
    """Reads and splits a table of numbers with a column of classes.

    A first column without a name, as pandas writes its index, is left out, and so are columns that
    order the rows as the classes do.

    Args:
        path: a text file, maybe compressed as ``.gz``; its first line has the columns' names.
        seed: draws the split, a quarter of each class for the test.
        label: the name of the column of classes. None for the one in `LABELS`, or else the only
            column of words.

    Raises:
        UserError: for a file that Polars cannot read, and for cells that are no numbers.
    """
    refuse_too_large(path, WORKING_COPIES * path.stat().st_size, "keep fewer rows")
    with reading(path, WAY_OUT):
        table = _table(path)
    label = _label(path.name, table, label)
    y = table[label].to_numpy().astype(str)
    names = [name for name in table.columns if name not in ("", label)]
    X = _numbers(path.name, table, names)
    leaks = [names[column] for column in ordering_columns(X, y)]
    if len(leaks) == len(names):
        raise UserError(
            f"{path.name} has {', '.join(map(repr, leaks)) or 'no column'} beside its classes; "
            "wanted features: a column that orders the rows as the classes do is none."
        )
    X = X[:, [name not in leaks for name in names]]
    (y,), classes = number_labels(f"the column {label!r} of {path.name}", [y])
    note = (
        f"{path.name}: {len(y)} rows of {X.shape[1]} columns of numbers; {len(classes)} classes in "
        f"{label!r}{'; left out: the first column, without a name' * ('' in table.columns)}"
    )
    for leak in leaks:
        note += (
            f"; left out, as it orders the rows as the classes do: {leak} (if it is a feature, "
            "shuffle the rows)"
        )
    return make_dataset(path.name, (X, y), None, seed, classes, [note])


def _table(path: Path) -> pl.DataFrame:
    """All cells as text, without empty lines."""
    separator = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    table = pl.read_csv(path, separator=separator, infer_schema=False, glob=False)
    table = table.rename(str.strip).filter(~pl.all_horizontal(pl.all().is_null()))
    table = table.select(pl.all().str.strip_chars().fill_null(""))
    if table.width < 2 or table.is_empty():
        raise ValueError(f"it has {table.height} rows of {table.width} columns below its first")
    if numbers := [name for name in table.columns if _parsed([name]).is_not_null().any()]:
        raise ValueError(f"its first line has the number {numbers[0]}, where a name is due")
    for column in table:
        lines = column.filter(column.str.contains("\n", literal=True))
        if len(lines):  # One field of all lines up to the next quote.
            raise ValueError(f"a quote goes over several lines: {lines[0][:20]!r}")
    return table


def _label(name: str, table: pl.DataFrame, label: str | None) -> str:
    """The name of the column of classes."""
    if label is not None:
        check_known(f"column of {name}", label, table.columns)
        return label
    found = [each for each in table.columns if each.lower() in LABELS]
    found = found or [each.name for each in table if each.name and _parsed(each).is_null().all()]
    if len(found) != 1:
        raise UserError(
            f"{name} has {', '.join(map(repr, found)) or 'no column'} for classes, of the columns "
            f"{', '.join(map(repr, table.columns))[:200]}; wanted one, called label, or the only "
            "one of words: name it by --label."
        )
    return found[0]


def _numbers(
    name: str, table: pl.DataFrame, features: Sequence[str]
) -> Float[np.ndarray, "rows columns"]:
    """The features; UserError for cells that are no numbers."""
    columns = [table[feature] for feature in features]
    for column in columns:
        wrong = _parsed(column).is_null()
        if row := wrong.arg_true().to_list()[:1]:
            raise UserError(
                f"{name}: the column {column.name!r} has no number in {wrong.sum()} rows, first in "
                f"row {row[0] + 1} ({column[row[0]]!r}); wanted numbers with decimal points, but "
                "for one column of classes: fill or drop missing values, write words as numbers, "
                "or name the classes by --label."
            )
    return np.reshape([_parsed(column) for column in columns], (len(columns), table.height)).T


def _parsed(cells: Iterable[str]) -> pl.Series:
    """The numbers of cells; null for those that are none."""
    series = cells if isinstance(cells, pl.Series) else pl.Series(cells)
    return series.replace(TRUTH).cast(pl.Float64, strict=False)
