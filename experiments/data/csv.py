"""Reading ``FILE.csv``: a line with the columns' names, then one row a line, with its class."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from experiments.data.dataset import Dataset
from experiments.data.npz import split_whole
from experiments.errors import UserError
from experiments.reading import reading, refuse_too_large

#: What the column of classes may be called, in any case; if none is, it is the last column.
LABELS = ("label", "class", "target", "y")

#: Of each byte of the file: its text, and the numbers that become of it.
WORKING_COPIES = 40


def load_csv(path: Path, seed: int) -> Dataset:
    """Reads and splits a table of numbers with a column of classes.

    Args:
        path: a file in UTF-8. Classes may be words; they are numbered in the order of the numbers
            or of the alphabet.
        seed: draws the split.
    """
    with reading(path, "wanted a table in UTF-8, with commas: save it anew"):
        refuse_too_large(path, WORKING_COPIES * path.stat().st_size, "keep fewer rows")
        with path.open(encoding="utf-8-sig", newline="") as file:
            names, *rows = [row for row in csv.reader(file, strict=True) if row] or [[]]
    _check(path.name, names, rows)
    place = _place(path.name, names)
    y = _classes(path.name, names[place], [row[place] for row in rows])
    features = [column for column in range(len(names)) if column != place]
    X = np.stack([_numbers(path.name, names[i], [row[i] for row in rows]) for i in features], 1)
    return split_whole(path.name, X, y, {}, seed)


def _check(name: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Raises UserError unless names come first, and each row has as many values."""
    if len(names) < 2 or not rows or not any(_number(each) is None for each in names):
        raise UserError(
            f"{name} begins with {','.join(names)[:80]!r}, before {len(rows)} rows; wanted the "
            "names of two columns or more, and then rows: write them into the first line."
        )
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise UserError(
                f"{name}: row {number} has {len(row)} values; wanted {len(names)}, one for each "
                "name in the first line: mend the row."
            )


def _place(name: str, names: Sequence[str]) -> int:
    """The place of the column of classes."""
    found = [place for place, each in enumerate(names) if each.strip().lower() in LABELS]
    if len(found) > 1:
        raise UserError(
            f"{name} has several columns for classes, {', '.join(names[i] for i in found)}; wanted "
            f"one that is called {', '.join(LABELS)}, or none and the last: rename the others."
        )
    return found[0] if found else len(names) - 1


def _classes(name: str, column: str, values: Sequence[str]) -> Int[np.ndarray, " rows"]:
    numbers = [_number(value) for value in values]
    known = [number for number in numbers if number is not None]
    whole = len(known) == len(values)
    found, y = np.unique(known if whole else values, return_inverse=True)
    fractions = whole and bool(np.any(np.mod(known, 1)))
    if fractions or "" in values or 2 * len(found) > len(values):
        raise UserError(
            f"{name}: the column {column!r} is taken for the classes, and has {len(found)} "
            f"different values in {len(values)} rows; wanted words or whole numbers, of which each "
            f"comes in several rows: name the column of classes {LABELS[0]!r}, or put it last."
        )
    return y


def _numbers(name: str, column: str, values: Sequence[str]) -> Float[np.ndarray, " rows"]:
    numbers = [_number(value) for value in values]
    if None in numbers:
        row = numbers.index(None)
        raise UserError(
            f"{name}: the column {column!r} has {values[row][:40]!r} in row {row + 1}; wanted "
            "numbers: encode words as columns of numbers, and fill or drop missing values."
        )
    return np.array(numbers, np.float64)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
