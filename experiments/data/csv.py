"""Reading tables: ``FILE.csv`` of numbers with a column of classes."""

import codecs
import csv
import gzip
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float

from experiments.data.dataset import MISSING, Dataset, make_dataset, number_labels
from experiments.data.doubts import ordering_columns
from experiments.data.reading import free_memory, reading, refuse_too_large
from experiments.errors import UserError, check_known

#: Names of the column of classes, in any case.
LABELS = ("label", "class", "target", "y")

#: The separators of columns; the first that gives every line as many fields is the file's: a comma
#: beside it is decimal.
SEPARATORS = {"\t": "tab", ";": "semicolon", "|": "bar", ",": "comma"}

#: The lines that decide the separator.
LINES = 100

#: Truth values as pandas, R and spreadsheets write them, which are features of 1 and 0.
TRUTH = {"True": "1", "TRUE": "1", "true": "1", "False": "0", "FALSE": "0", "false": "0"}

#: A number with commas that may be decimal or between thousands, of which no number begins with 0.
THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+$"

#: A number with points that may be decimal or between thousands, and one below a thousand.
POINTS, BELOW = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$", r"^[+-]?\d{1,3}$"

#: The shortest row of numbers 1, 2, ... that looks like a line of names, or column like an index.
COUNTED = 3

#: Bytes of memory per byte of the file: its text, and the numbers in it.
WORKING_COPIES = 40


def load_csv(path: Path, seed: int, label: str | None = None) -> Dataset:
    """Reads and splits a table of numbers with a column of classes.

    Args:
        path: a text file, maybe compressed as ``.gz``. Tabs, semicolons, bars or commas separate
            its columns; the first line may have their names.
        seed: draws the split, a quarter of each class for the test.
        label: the name of the column of classes. None for the one in `LABELS`, or else the only
            column of words, or else the last.
    """
    with reading(path, "wanted a table: numbers, but for the classes"):
        cells = _cells(_text(path))
        columns, named = _named(path.name, cells, label)
        index = _index(path.name, columns)
        y = columns[label := _label(path.name, columns, label)].to_numpy().astype(str)
        if not named and y[0] not in y[1:]:
            raise _names_or_row(path.name, cells.row(0))
        features = {name: cells for name, cells in columns.items() if name not in (index, label)}
        X = _numbers(path.name, features)
        names = [*features]
        leaks = [names[column] for column in ordering_columns(X, y)]
        if leaks and len(leaks) == len(names):
            raise UserError(
                f"{path.name} has no column but {', '.join(map(repr, leaks))}, which orders the "
                "rows as the classes do; wanted features: an index tells the class in a sorted "
                "file."
            )
        X = X[:, [name not in leaks for name in names]]
    (y,), classes = number_labels(f"the column {label!r} of {path.name}", [y])
    note = (
        f"{path.name}: {len(y)} rows of {X.shape[1]} columns of numbers"
        f"{'' if named else ', without a line of names'}; {len(classes)} classes in {label!r}"
    )
    if index is not None:
        note += f"; left out, as it numbers the rows: {index or 'the first, without a name'}"
    for leak in leaks:
        note += (
            f"; left out, as it orders the rows as the classes do: {leak} (if it is a feature, "
            "shuffle the rows)"
        )
    return make_dataset(path.name, (X, y), None, seed, classes, [note])


def _text(path: Path) -> str:
    """The text of a file, with line ends as on Unix, as far as it fits memory."""
    free = free_memory()
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as file:
        content = bytes(file.read(free // WORKING_COPIES + 1))
    refuse_too_large(path, WORKING_COPIES * len(content), "keep fewer rows", free)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = content.decode("utf-16")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:  # As spreadsheets write it in western Europe.
            _check_one_encoding(content)
            text = content.decode("cp1252")
    if "\0" in text:
        raise ValueError("it holds zero bytes, as no text does: save the table as CSV")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check_one_encoding(content: bytes) -> None:
    """Raises for a text with lines in UTF-8 and lines in another encoding."""
    first: dict[bool, int] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line.isascii():
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                first.setdefault(False, number)
            else:
                first.setdefault(True, number)
    if len(first) == 2:
        raise ValueError(
            f"line {first[True]} is in UTF-8 and line {first[False]} is not: save it in one "
            "encoding"
        )


def _cells(text: str) -> pl.DataFrame:
    """All cells as text, without empty lines and empty columns at the end."""
    first = re.match(r"sep=(.)\n", text, re.IGNORECASE)  # A spreadsheet's own line.
    text = text[first.end() :] if first else text
    widths = {}
    for separator in first[1] if first else SEPARATORS:
        lines = itertools.islice(csv.reader(io.StringIO(text), delimiter=separator), LINES)
        widths[separator] = [len(line) for line in lines if any(map(str.strip, line))]
    fitting = [each for each, width in widths.items() if width and 1 < min(width) == max(width)]
    if not fitting:
        shown = [f"{SEPARATORS.get(each, each)} {width[:5]}" for each, width in widths.items()]
        several = [each for each, width in widths.items() if max(width, default=1) > 1]
        line = f"; {_ragged(text, several[0])}" if several else ""
        raise ValueError(
            "it is empty, or no separator gives its lines two or more fields, and all as many; the "
            f"first lines have, by {', '.join(shown)}{line}"
        )
    try:
        table = pl.read_csv(
            text.encode(), has_header=False, separator=fitting[0], infer_schema=False
        )
    except pl.exceptions.PolarsError:
        raise ValueError(_ragged(text, fitting[0])) from None
    _check_quotes(table, text, fitting[0])
    table = table.select(pl.all().str.strip_chars().fill_null(""))
    table = table.filter(~pl.all_horizontal(pl.all() == ""))
    return table.select(each for each in table if not (each == "").all())


def _lines(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a text with the numbers of their first lines, as Python's own reader has them."""
    reader, first = csv.reader(io.StringIO(text), delimiter=separator), 1
    for row in reader:
        yield first, row
        first = reader.line_num + 1


def _ragged(text: str, separator: str) -> str:
    """Says which line has another number of fields than the first."""
    lines = _lines(text, separator)
    rows = ((number, len(row)) for number, row in lines if any(map(str.strip, row)))
    _, width = next(rows)
    for number, count in rows:
        if count != width:
            return f"line {number} has {count} fields, and the first line has {width}"
    return "its quotes do not fit: a quote that opens a field must close it"


def _check_quotes(table: pl.DataFrame, text: str, separator: str) -> None:
    """Raises for a field with a line end: a stray quote makes one field of all up to the next."""
    if (
        not table.select(pl.any_horizontal(pl.all().str.contains("\n", literal=True)))
        .to_series()
        .any()
    ):
        return
    for number, row in _lines(text, separator):
        for cell in row:
            if "\n" in cell.strip():
                raise ValueError(
                    f"a quote in line {number} goes over {cell.count(chr(10)) + 1} lines "
                    f"({cell[:20]!r}): mend it, or write quotes in words twice"
                )
    raise ValueError("a quote goes over several lines: mend it")


def _named(name: str, cells: pl.DataFrame, label: str | None) -> tuple[dict[str, pl.Series], bool]:
    """The columns by name, and whether the first line has the names.

    It has if it holds a word in a column of numbers, or the name of the column of classes.
    """
    first, rows = [str(cell) for cell in cells.row(0)], cells[1:]
    if rows.is_empty():
        raise UserError(f"{name} has one line; wanted rows, maybe below a line of names.")
    heads, numeric = pl.Series(first), pl.Series([_is_numeric(column) for column in rows])
    numbers = _parsed(heads.filter(numeric & ~heads.is_in(MISSING)))
    unique = {first[i].lower() for i in (~numeric).arg_true() if first[i] not in rows[:, i]}
    named = numbers.has_nulls() or bool(unique & {*LABELS, (label or "").lower()})
    counts = len(numbers) >= COUNTED and (numbers.diff()[1:] == 1).all()
    if not named and (counts or unique):
        raise _names_or_row(name, first)
    if not named:
        first, rows = [f"column {i}" for i in range(1, len(first) + 1)], cells
    first = [first[0], *(each or f"column {i}" for i, each in enumerate(first[1:], 2))]
    if len(set(first)) < len(first):
        raise UserError(
            f"{name} has several columns of one name; wanted different ones, not "
            f"{','.join(first)[:200]!r}."
        )
    return dict(zip(first, rows, strict=True)), named


def _names_or_row(name: str, first: Sequence[object]) -> UserError:
    return UserError(
        f"{name} begins with {','.join(map(str, first))[:80]!r}, which may be names or a row; "
        "wanted a first line with a word above each column of numbers."
    )


def _index(name: str, columns: Mapping[str, pl.Series]) -> str | None:
    """The first column, if it numbers the rows or has a different cell for each row and no name.

    A nameless column is pandas' or R's index, of which sorted files leak the class.
    """
    first, cells = next(iter(columns.items()))
    nameless = not first or first.startswith("Unnamed: ")
    if nameless and cells.n_unique() < len(cells):
        raise UserError(
            f"{name} has a first column without a name, whose cells repeat; wanted a name, or no "
            "such column."
        )
    steps = _parsed(cells).diff()[1:].fill_null(0)
    counts = len(steps) >= COUNTED and len(columns) > 2 and bool((steps == 1).all())
    return first if nameless or counts else None


def _label(name: str, columns: Mapping[str, pl.Series], label: str | None) -> str:
    """The name of the column of classes."""
    if label is not None:
        check_known(f"column of {name}", label, columns)
        return label
    found = [each for each in columns if each.lower() in LABELS]
    words = [each for each, cells in columns.items() if not _is_numeric(cells)]
    if len(found) > 1:
        raise UserError(
            f"{name} has several columns for classes, {', '.join(found)}; wanted one: name it by "
            "--label."
        )
    return [*columns, *(words if len(words) == 1 else ()), *found][-1]


def _numbers(name: str, columns: Mapping[str, pl.Series]) -> Float[np.ndarray, "rows columns"]:
    """The features; UserError for cells that are missing or words, and for two kinds of commas."""
    for column, cells in columns.items():
        for what, wrong in {
            "has no value": cells.is_in(MISSING),
            "is no number": _parsed(cells).is_null(),
        }.items():
            if wrong.any():
                row = wrong.to_list().index(True)
                raise UserError(
                    f"{name}: the column {column!r} {what} in {wrong.sum()} rows, first in row "
                    f"{row + 1} ({cells[row]!r}); wanted numbers, but for one column of classes: "
                    "fill or drop missing values, write words as numbers, or name the classes by "
                    "--label."
                )
    for cells in columns.values():
        grouped = cells.str.contains(POINTS)
        below = cells.filter(~grouped)
        if grouped.any() and len(below) and below.str.contains(BELOW).all():
            raise UserError(
                f"{name} has the number {cells.filter(grouped)[0]!r} beside {below[0]!r} in a "
                "column, and its point may be decimal or between thousands; wanted one form: save "
                "the table without thousands, or all numbers with as many decimals."
            )
    commas = [cells.filter(cells.str.contains(",")) for cells in columns.values()]
    if any(map(len, commas)):
        points = any(cells.str.contains(".", literal=True).any() for cells in columns.values())
        if points or all(cells.str.contains(THOUSANDS).all() for cells in commas):
            example = next(cells[0] for cells in commas if len(cells))
            raise UserError(
                f"{name} has the number {example!r}, whose comma may be decimal or between "
                "thousands; wanted one sign, and that decimal: save the table without thousands."
            )
    return np.stack([_parsed(cells).to_numpy() for cells in columns.values()], 1)


def _parsed(cells: pl.Series) -> pl.Series:
    """The numbers of cells; null for those that are none."""
    return cells.replace(TRUTH).str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)


def _is_numeric(cells: pl.Series) -> bool:
    """Returns True if every cell is a number or missing, and any is a number."""
    missing, numbers = cells.is_in(MISSING), _parsed(cells)
    return not missing.all() and not (numbers.is_null() & ~missing).any()
