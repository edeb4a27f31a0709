"""Reading ``FILE.csv``: a line with the columns' names, then one row a line, with its class."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Int

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
    with reading(path, "wanted a table in UTF-8, with commas, and numbers but for the classes"):
        refuse_too_large(path, WORKING_COPIES * path.stat().st_size, "keep fewer rows")
        text = pl.read_csv(path, infer_schema=False).select(pl.all().str.strip_chars())
        rows = text.filter(~pl.all_horizontal(pl.all().is_null()))  # No empty lines.
        label = _label(path.name, rows.columns)
        X = rows.drop(label).cast(pl.Float64).to_numpy()
    return split_whole(path.name, {"X": X, "y": _classes(path.name, rows[label])}, seed)


def _label(name: str, columns: Sequence[str]) -> str:
    """The column of classes."""
    if all(map(_is_number, columns)):
        raise UserError(
            f"{name} begins with {','.join(columns)[:80]!r}; wanted the columns' names, and then "
            "rows: write them into the first line."
        )
    found = [each for each in columns if each.strip().lower() in LABELS]
    if len(found) > 1:
        raise UserError(
            f"{name} has several columns for classes, {', '.join(found)}; wanted one that is "
            f"called {', '.join(LABELS)}, or none and the last: rename the others."
        )
    return found[0] if found else columns[-1]


def _classes(name: str, column: pl.Series) -> Int[np.ndarray, " rows"]:
    """The class numbers of a column of words or of numbers."""
    values = column.fill_null("").to_list()
    numbers = [float(value) for value in values if _is_number(value)]
    whole = len(numbers) == len(values)
    found, y = np.unique(numbers if whole else values, return_inverse=True)
    fractions = whole and bool(np.any(np.mod(numbers, 1)))
    if fractions or "" in values or 2 * len(found) > len(values):
        raise UserError(
            f"{name}: the column {column.name!r} is taken for the classes, and has {len(found)} "
            f"different values in {len(values)} rows; wanted words or whole numbers, of which each "
            f"comes in several rows: name the column of classes {LABELS[0]!r}, or put it last."
        )
    return y


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
