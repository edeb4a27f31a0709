"""The one form in which every dataset reaches training, and the steps that lead to it."""

import reprlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Num, Shaped

from experiments.errors import UserError


class Dataset(NamedTuple):
    """A training and a test split, standardized.

    Attributes:
        X_train: float32, (rows, features), (rows, points, 3) or (rows, height, width, channels);
            int32 tokens (rows, length).
        y_train: int32 class numbers 0 .. num_classes - 1; of tokens one at each position.
        X_test: as X_train.
        y_test: as y_train.
        name: what the user called it.
        num_classes: of the training rows.
        stream: if there are more rows than memory: what reads them. The arrays are a sample then.
        mean: of the columns or channels of streamed rows, which come as they are stored.
        scale: their deviation, or 1.
    """

    X_train: Num[np.ndarray, "rows *shape"]
    y_train: Int[np.ndarray, "rows *positions"]
    X_test: Num[np.ndarray, "test_rows *shape"]
    y_test: Int[np.ndarray, "test_rows *positions"]
    name: str
    num_classes: int
    stream: Any = None
    mean: np.ndarray | None = None
    scale: np.ndarray | None = None

    @property
    def train_rows(self) -> int:
        """The number of training rows."""
        return len(self.X_train) if self.stream is None else len(self.stream.train)

    def with_rows(self, train_rows: int | None, test_rows: int | None) -> "Dataset":
        """With so many rows of the splits, standardized anew; the same ones always."""
        if train_rows is None and test_rows is None:
            return self
        train = self._some("train", self.X_train, self.y_train, train_rows)
        return self.split_anew(train, self._some("test", self.X_test, self.y_test, test_rows))

    def _some(self, part: str, X: "Rows", y: "Labels", count: int | None) -> "Train":
        """So many rows of a split, drawn without the seed; all for None."""
        if count is None:
            return X, y
        if self.stream is not None or count > len(X):
            there = f"has {len(X)}" if self.stream is None else "streams its"
            raise UserError(
                f"--{part}-rows is {count}, and {self.name} {there} {part} rows; wanted as many or "
                "fewer, of rows in memory: take fewer, or leave the flag out."
            )
        kept = np.random.default_rng(0).permutation(len(X))[:count]
        return X[kept], y[kept]

    def split_anew(self, train: "Train", test: "Test") -> "Dataset":
        """With other rows in the splits, standardized anew on the first; tokens stay numbers."""
        if np.issubdtype(self.X_train.dtype, np.integer):
            (X_train, y_train), (X_test, y_test) = train, test
            return self._replace(X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)
        return make_dataset(self.name, train, test, self.num_classes)


#: The largest number whose square, summed over any rows, float32 holds; numbers that stand for a
#: missing value (1e20, 1e30, 9.97e36) are beyond it.
LARGEST = 1e15

Rows = Shaped[np.ndarray, "rows *shape"]
Labels = Shaped[np.ndarray, "rows *positions"]
#: The two splits, each with as many labels as rows; that the rows have one shape is checked here.
Train = tuple[Shaped[np.ndarray, "train_rows *shape"], Shaped[np.ndarray, "train_rows *positions"]]
Test = tuple[
    Shaped[np.ndarray, "test_rows *test_shape"], Shaped[np.ndarray, "test_rows *positions"]
]


def make_dataset(name: str, train: Train, test: Test, num_classes: int) -> Dataset:
    """Checks two splits, standardizes both by the training rows, and gives labels their type.

    Point clouds keep their coordinates, which have one unit of length and a reader's scale.
    """
    for part, (X, y) in {"training": train, "test": test}.items():
        _check_split(name, part, X, y, num_classes)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise UserError(
            f"{name}: training rows have shape {train[0].shape[1:]} and test rows "
            f"{test[0].shape[1:]}; make them equal."
        )
    if num_classes < 2:
        raise UserError(
            f"{name} has {num_classes} class; wanted 2 or more: there is nothing to tell apart."
        )
    clouds = train[0].ndim == 3
    X_train, X_test = (train[0], test[0]) if clouds else standardize(train[0], test[0])
    y_train, y_test = train[1].astype(np.int32), test[1].astype(np.int32)
    return Dataset(X_train, y_train, X_test, y_test, name, num_classes)


def standardize(
    train: Rows, test: Shaped[np.ndarray, "test_rows *shape"]
) -> tuple[Rows, Shaped[np.ndarray, "test_rows *shape"]]:
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


def split_by_seed(X: Rows, y: Labels, seed: int) -> tuple[Train, Test]:
    """A random three quarters for training, the rest for the test; a function of the seed alone."""
    order = np.random.default_rng(seed).permutation(len(X))
    held_out = np.zeros(len(X), bool)
    held_out[order[: max(1, len(X) // 4)]] = True
    return split_by_mask(X, y, held_out)


def split_by_mask(X: Rows, y: Labels, held_out: Bool[np.ndarray, " rows"]) -> tuple[Train, Test]:
    """The rows where ``held_out`` is False for training, the others for the test."""
    return (X[~held_out], y[~held_out]), (X[held_out], y[held_out])


def _check_split(name: str, part: str, X: Rows, y: Labels, classes: int) -> None:
    if len(X) == 0:
        raise UserError(f"{name}: there are no {part} rows; both splits need some.")
    if X.ndim not in (2, 3, 4) or 0 in X.shape:
        raise UserError(
            f"{name}: the {part} rows have shape {X.shape}; wanted (rows, features) or "
            "(rows, height, width[, channels]), or point clouds (rows, points, 3)."
        )
    _check_sizes(name, part, X)
    check_labels(name, part, y, classes)


def _check_sizes(name: str, part: str, X: Rows) -> None:
    """Raises where float32 cannot standardize, or where numbers seem to stand for missing ones."""
    if X.dtype.kind != "f":
        return
    largest = max(X.max(), -X.min())  # NaN if there is one.
    if largest and not 1 / LARGEST <= largest <= LARGEST:
        raise UserError(
            f"{name}: the {part} rows reach {largest:.3g}; wanted sizes from {1 / LARGEST:g} to "
            f"{LARGEST:g}, and no NaN: rescale the columns, and fill or drop what stands for "
            "missing values."
        )


def check_labels(name: str, part: str, y: Labels, classes: int) -> None:
    """Raises UserError for labels that are no numbers of the classes to train on."""
    if y.min() < 0 or y.max() >= classes:
        raise UserError(
            f"{name}: {part} labels are from {y.min()} to {y.max()}; wanted class numbers 0 to "
            f"{classes - 1}, of classes that have training rows: take a part that has labels, as "
            "validation often is."
        )


def count_classes(name: str, y: Labels) -> int:
    """The number of classes; raises UserError unless they are 0, 1, 2, ... and have rows each."""
    found = np.unique(y)
    if not np.array_equal(found, np.arange(len(found))):
        raise UserError(
            f"{name}: labels are {reprlib.repr(found.tolist())}; wanted class numbers 0, 1, 2, ... "
            "(np.unique(y, return_inverse=True)[1] makes them)."
        )
    return len(found)


def check_trained(name: object, rows: str, classes: Iterable[str], tested: Iterable[str]) -> None:
    """Raises UserError for a class to test on and none of its rows to train on."""
    if unseen := sorted({*tested} - {*classes}):
        raise UserError(
            f"{name} has test {rows} of the class {unseen[0]} and none to train on; wanted some "
            "for every class: add them, or take it out."
        )
