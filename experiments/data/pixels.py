"""Numbers of pictures that may tell the class alone: channels, color, pixels, forms of files.

`doubts` judges them as it judges the columns of a table.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int, Num

#: The rows that rule out most pixels before others are looked at, and the growth of their number.
FIRST, GROWTH = 32, 8

#: The most rows that rule out pixels, and the most pixels that all rows are then asked about.
SCREEN, MOST = 1000, 64

#: The values that are compared at a time.
BLOCK = 1 << 24

#: The least number of ways to draw the rows of a class, per pixel: chance separates none of them.
WAYS = 100

#: The least ratio of the gaps between classes to what a class extends over.
WIDE = 8

Table = Num[np.ndarray, "rows columns"]
Labels = Int[np.ndarray, " rows"]


def picture_columns(
    X: Num[np.ndarray, "rows height width channels"], y: Labels
) -> tuple[list[str], Table]:
    """Returns the names and the values of numbers of pictures that may tell the class.

    Such are the mean of a channel, whether a picture is gray, and single pixels, which are left out
    if a mean may. Of several pixels the first is returned, with their number.
    """
    some = stratified(y)[:SCREEN]
    means = _beyond_chance(_summaries(X[some]), y[some])
    names = [f"the mean of channel {channel}" for channel in range(X.shape[3])]
    names.append("being gray or colored")
    table = _summaries(X)[:, means] if len(means) else np.zeros((len(X), 0))
    kept = np.flatnonzero(may_tell(table, y))
    named, columns = [names[each] for each in means[kept].tolist()], [*table[:, kept].T]
    if not {*means[kept]} - {X.shape[3]}:
        pixel, column = _first_pixel(X, y)
        named, columns = named + pixel, columns + column
    return named, np.stack([np.zeros(len(y)), *columns], 1)[:, 1:]


def file_columns(pictures: Sequence[Mapping[str, object]], y: Labels) -> tuple[list[str], Table]:
    """Returns the names and the values of properties of files that may tell the class.

    Args:
        pictures: the properties of each file, by name.
        y: their class numbers.
    """
    names = [*pictures[0]]
    columns = [np.array([each[name] for each in pictures]) for name in names]
    codes = [c if c.dtype.kind == "i" else np.unique(c, return_inverse=True)[1] for c in columns]
    table = np.stack(codes, 1).astype(np.float64)
    kept = np.flatnonzero(may_tell(table, y) | _has_rows(y, len(names)))
    return [f"the {names[each]} of the files" for each in kept.tolist()], table[:, kept]


def may_tell(X: Table, y: Labels) -> Bool[np.ndarray, " columns"]:
    """Returns True for columns with gaps between the classes that are wider than any class.

    Columns that are constant within each class, and not over all, count too.
    """
    numbers = np.unique(y)
    low, high = (np.stack([f(X[y == k], 0) for k in numbers]) for f in (np.min, np.max))
    told = (low == high).all(0) & (low != low[0]).any(0)
    order = np.argsort(low, axis=0)
    ends, starts = (np.take_along_axis(each, order, 0) for each in (high, low))
    wide = (starts[1:] - ends[:-1] > WIDE * (high - low).max(0)).all(0) & (len(numbers) > 1)
    return told | wide


def stratified(y: Labels) -> Int[np.ndarray, " rows"]:
    """Returns the rows in an order that takes the classes in turn."""
    order = np.argsort(y, kind="stable")
    counts = np.unique_counts(y).counts
    turns = np.concatenate([np.arange(count) for count in counts])
    return order[np.argsort(turns, kind="stable")]


def _summaries(X: Num[np.ndarray, "rows height width channels"]) -> Table:
    """Returns the mean of each channel, and 1 for gray pictures of three or more channels."""
    gray = np.zeros(len(X), bool)
    if X.shape[3] >= 3:
        gray = (X[..., :1] == X[..., 1:3]).all((1, 2, 3))
    return np.column_stack([X.mean((1, 2), dtype=np.float64), gray])


def _beyond_chance(X: Table, y: Labels) -> Int[np.ndarray, " kept"]:
    """Returns the columns that may tell the class, if there are rows enough to say so."""
    return np.flatnonzero(may_tell(X, y) & _has_rows(y, X.shape[1]))


def _has_rows(y: Labels, columns: int) -> bool:
    """Returns True for so many rows that chance separates a class from the others in no column."""
    return math.comb(len(y), int(np.unique_counts(y).counts.min())) >= WAYS * columns


def _first_pixel(
    X: Num[np.ndarray, "rows height width channels"], y: Labels
) -> tuple[list[str], list[Num[np.ndarray, " rows"]]]:
    """Returns the name and the values of the first pixel that may tell the class; empty if none."""
    places = [np.unravel_index(pixel, X.shape[1:]) for pixel in _telling_pixels(X, y)[:MOST]]
    columns = [X[:, *place].astype(np.float64) for place in places]
    kept = [each for each, column in enumerate(columns) if may_tell(column[:, None], y)[0]]
    if not kept:
        return [], []
    row, column, channel = places[kept[0]]
    such = f", of {len(kept)}{' or more' * (len(kept) == MOST)} such," * (len(kept) > 1)
    return [f"pixel ({row}, {column}) of channel {channel}{such}"], [columns[kept[0]]]


def _telling_pixels(
    X: Num[np.ndarray, "rows height width channels"], y: Labels
) -> Int[np.ndarray, " pixels"]:
    """Returns the flat places of pixels that may tell the class, by more and more rows."""
    pixels, order = np.arange(math.prod(X.shape[1:])), stratified(y)[:SCREEN]
    size = max(FIRST, 3 * len(np.unique(y)))
    while len(pixels) and _has_rows(y[order], math.prod(X.shape[1:])):
        rows = order[:size]
        flat = X[rows].reshape(len(rows), -1)
        parts = np.array_split(pixels, 1 + len(rows) * len(pixels) // BLOCK)
        pixels = np.concatenate([part[may_tell(flat[:, part], y[rows])] for part in parts])
        if size >= len(order):
            return pixels
        size *= GROWTH
    return pixels[:0]
