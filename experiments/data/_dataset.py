"""The one form in which every dataset reaches training, and the steps that lead to it."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from experiments._errors import UserError


class Dataset(NamedTuple):
    """A training and a test split, standardized.

    Attributes:
        X_train: float32, (rows, features), (rows, points, 3) or (rows, height, width, channels).
        y_train: int32 class numbers 0 .. num_classes - 1.
        X_test: as X_train.
        y_test: as y_train.
        name: what the user called it.
        num_classes: one more than the largest class number of the training rows.
        stream: if there are more rows than memory: what reads them. The arrays are a sample then.
        mean: of the columns or channels of streamed rows, which come as they are stored.
        scale: their deviation, or 1.
    """

    X_train: Float[np.ndarray, "rows *shape"]
    y_train: Int[np.ndarray, " rows"]
    X_test: Float[np.ndarray, "test_rows *shape"]
    y_test: Int[np.ndarray, " test_rows"]
    name: str
    num_classes: int
    stream: Any = None
    mean: np.ndarray | None = None
    scale: np.ndarray | None = None

    @property
    def train_rows(self) -> int:
        """The number of training rows."""
        return len(self.X_train) if self.stream is None else len(self.stream.train)


Rows = Shaped[np.ndarray, "rows *shape"]
Labels = Shaped[np.ndarray, " rows"]


def make_dataset(
    name: str, train: tuple[Rows, Labels], test: tuple[Rows, Labels], num_classes: int | None = None
) -> Dataset:
    """Checks two splits, standardizes both by the training rows, and gives labels their type.

    Point clouds keep their coordinates, which have one unit of length and a reader's scale.
    """
    for part, (X, y) in {"training": train, "test": test}.items():
        _check_split(name, part, X, y)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise UserError(
            f"{name}: training rows have shape {train[0].shape[1:]} and test rows "
            f"{test[0].shape[1:]}; make them equal."
        )
    if num_classes is None:
        num_classes = _count_classes(name, train[1], test[1])
    clouds = train[0].ndim == 3
    X_train, X_test = (train[0], test[0]) if clouds else standardize(train[0], test[0])
    y_train, y_test = train[1].astype(np.int32), test[1].astype(np.int32)
    return Dataset(X_train, y_train, X_test, y_test, name, num_classes)


def standardize(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    """Zero mean and unit variance on the training rows: by column, or by channel for images.

    A column that is constant on the training rows is only centred.
    """
    mean, scale = deviations(train)
    train, test = ((X.astype(np.float32) - mean) / scale for X in (train, test))
    return train, test


def deviations(train: Rows) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the deviation of each column or channel; 1 for the deviation of a constant."""
    axes = tuple(range(train.ndim - 1))
    mean = train.mean(axes, dtype=np.float64).astype(np.float32)
    # Centre first: the deviation of a large constant column is then exactly zero.
    deviation = np.sqrt(np.square(train.astype(np.float32) - mean).mean(axes, dtype=np.float64))
    varies = deviation > 1e-6 * np.abs(mean)
    return mean, np.where(varies, deviation, 1.0).astype(np.float32)


def split_by_seed(X: Rows, y: Labels, seed: int) -> tuple[tuple[Rows, Labels], tuple[Rows, Labels]]:
    """A random three quarters for training, the rest for the test; a function of the seed alone."""
    order = np.random.default_rng(seed).permutation(len(X))
    held_out = np.zeros(len(X), bool)
    held_out[order[: max(1, len(X) // 4)]] = True
    return split_by_mask(X, y, held_out)


def split_by_mask(
    X: Rows, y: Labels, held_out: Shaped[np.ndarray, " rows"]
) -> tuple[tuple[Rows, Labels], tuple[Rows, Labels]]:
    """The rows where ``held_out`` is False for training, the others for the test."""
    return (X[~held_out], y[~held_out]), (X[held_out], y[held_out])


def _check_split(name: str, part: str, X: Rows, y: Labels) -> None:
    if len(X) == 0:
        raise UserError(f"{name}: there are no {part} rows; both splits need some.")
    if X.ndim not in (2, 3, 4):
        raise UserError(
            f"{name}: the {part} rows have shape {X.shape}; wanted (rows, features) or "
            "(rows, height, width[, channels]), or point clouds (rows, points, 3)."
        )
    if not np.isfinite(X).all():
        raise UserError(f"{name}: the {part} rows hold NaN or infinity; fill or drop them.")
    if y.min() < 0:
        raise UserError(
            f"{name}: {part} labels start at {y.min()}; wanted class numbers from 0 (subtract it)."
        )


def _count_classes(name: str, y_train: Labels, y_test: Labels) -> int:
    classes = int(y_train.max()) + 1
    if y_test.max() >= classes:
        raise UserError(
            f"{name}: test labels reach {y_test.max()} and training labels only {classes - 1}; "
            "every class needs training rows."
        )
    if classes > len(y_train):
        raise UserError(
            f"{name}: labels reach {classes - 1} with {len(y_train)} training rows; wanted class "
            "numbers 0, 1, 2, ... (np.unique(y, return_inverse=True)[1] makes them)."
        )
    return classes
