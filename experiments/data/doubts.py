"""Doubts about a dataset: what gives the class away, and what may be one thing in two spellings."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Num, Shaped

from experiments.data.pixels import picture_columns

#: The range of numbers of rows, over how many there are, if some rows were dropped.
DENSE = 10

#: Classes of fewer training rows tell nothing about what is a function of the class.
FEW = 3

#: The deviations of the training rows at which test rows are of another scale.
FAR = 10

Array = Shaped[np.ndarray, "..."]

#: The advice about a column that has one value per class, and about one that tells the class.
COLUMN = (
    "leave it out if it is the class in other words",
    "leave it out if it is only known with the class",
)
#: The advice about the files of pictures.
FILES = ("write all files alike, unless they will always differ so",) * 2


def doubts(name: str, X_train: Array, y_train: Array, classes: Sequence[str]) -> list[str]:
    """Returns lines on data that are as likely a mistake as meant: codes and spellings."""
    lines = leak_lines(name, X_train, y_train, classes)
    spellings: dict[str, str] = {}
    for each in classes:
        if (other := spellings.setdefault(each.casefold(), each)) != each:
            lines.append(
                f"{name}: the classes {other!r} and {each!r} differ in capitals alone; write them "
                "alike if they are one."
            )
    return lines


def leak_lines(name: str, X: Array, y: Array, classes: Sequence[str]) -> list[str]:
    """Returns a line on each column of a table, or number of a picture, that tells the class.

    Args:
        name: of the source.
        X: training rows; point clouds are not searched.
        y: class numbers; label maps are not searched.
        classes: the names of the classes.
    """
    if X.ndim not in (2, 4) or y.ndim != 1:
        return []
    names = [f"column {column}" for column in range(X.shape[1])]
    if X.ndim == 4:
        names, X = picture_columns(X, y)
    return told_lines(name, names, X, y, classes)


def told_lines(
    name: str,
    names: Sequence[str],
    X: Num[np.ndarray, "rows columns"],
    y: Array,
    classes: Sequence[str],
    advice: tuple[str, str] = COLUMN,
) -> list[str]:
    """Returns a line on each named column that is a function of the class, or tells it."""
    codes = class_codes(X, y)
    lines = [f"{name}: {names[each]} has one value per class; {advice[0]}." for each in codes]
    return lines + [
        f"{name}: {names[column]} tells {what}; {advice[1]}."
        for column, what in telling_columns(X, y, classes).items()
        if column not in codes
    ]


def class_codes(X: Array, y: Array) -> list[int]:
    """Returns the columns of features that are a function of the class, and not constant.

    None for a class of one or two rows, where a function says nothing.
    """
    if X.ndim != 2:
        return []
    _, first, number, counts = np.unique(y, True, True, True)
    if counts.min() < FEW:
        return []
    same = (X[first][number] == X).all(0)
    varied = (X[first] != X[first[0]]).any(0)
    return [int(column) for column in np.flatnonzero(same & varied)]


def telling_columns(X: Array, y: Array, classes: Sequence[str]) -> dict[int, str]:
    """Returns the columns that alone tell the class of all training rows, or one of the classes.

    Such are those of `class_codes`, a number by cohorts, and a number that stands for a missing
    value in all rows of one class and in no other row.

    Args:
        X: training rows; only tables are searched.
        y: class numbers.
        classes: the names of the classes.
    """
    numbers, counts = np.unique_counts(y)
    if X.ndim != 2 or counts.min() < FEW or len(numbers) < 2:
        return {}
    low, high = (np.stack([f(X[y == k], 0) for k in numbers]) for f in (np.min, np.max))
    order = np.argsort(low, axis=0)
    ends, starts = (np.take_along_axis(each, order, 0) for each in (high, low))
    told = {int(c): "the class" for c in np.flatnonzero((ends[:-1] < starts[1:]).all(0))}
    for k, number in enumerate(numbers):
        others = y != number
        for column in map(int, np.flatnonzero((low[k] == high[k]) & (low[k] != low).any(0))):
            if column not in told and not (X[others, column] == low[k, column]).any():
                told[column] = f"the class {classes[number]}"
    return dict(sorted(told.items()))


def other_scales(name: str, X_test: Array) -> list[str]:
    """Returns a line on columns or channels whose test rows are not of the training rows' scale.

    Args:
        name: of the source.
        X_test: standardized by the training rows; point clouds, which are not, are not searched.
    """
    if X_test.ndim not in (2, 4):
        return []
    sizes = np.sqrt(np.square(X_test).mean(tuple(range(X_test.ndim - 1)), dtype=np.float64))
    columns = np.flatnonzero(sizes > FAR)
    if not len(columns):
        return []
    return [
        f"{name}: in column {columns[0] + 1} of {len(sizes)}, of {len(columns)} such, the test "
        f"rows are {sizes[columns[0]]:.3g} deviations of the training rows from their mean; wanted "
        "one scale, unless the test is meant to be far away: save both from one array."
    ]


def ordering_columns(
    X: Num[np.ndarray, "rows columns"], y: Shaped[np.ndarray, " rows"]
) -> list[int]:
    """The columns that order the rows as their classes do, which tell the class without features.

    A number of the rows, with gaps or without, leaks the class of a sorted file. Such a column
    rises or falls along a file whose classes stand together, with each row or with many of them (a
    day, a batch); or it holds different whole numbers from a range of few times as many (rows that
    were shuffled after they were numbered), in whose order each class stands together.
    """
    if len(X) <= FEW:
        return []
    grouped, classes = _runs(y) <= _expected_runs(y) / 2, len(np.unique(y))
    found = []
    for column in range(X.shape[1]):
        values = np.asarray(X[:, column], float)
        if not np.isfinite(values).all():  # Whoever checks the rows refuses it.
            continue
        steps = np.diff(values)
        monotone = bool((steps >= 0).all() or (steps <= 0).all())
        changes = bool(np.count_nonzero(steps) >= FEW * classes)  # A code has fewer values.
        order = np.argsort(values, kind="stable")
        dense = np.ptp(values) < DENSE * len(values) and not np.mod(values, 1).any()
        numbers = dense and bool(np.diff(values[order]).all())
        together = _runs(y[order]) == classes
        if (monotone and changes and grouped) or (numbers and together):
            found.append(column)
    return found


def _runs(y: Shaped[np.ndarray, " rows"]) -> int:
    """The number of stretches of equal labels."""
    return 1 + int(np.count_nonzero(y[1:] != y[:-1]))


def _expected_runs(y: Shaped[np.ndarray, " rows"]) -> float:
    """The mean of `_runs` over all orders of the labels."""
    counts = np.unique_counts(y).counts
    return float(1 + len(y) - np.square(counts).sum() / len(y))
