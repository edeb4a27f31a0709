"""Data sets of different sizes, padded to one size, so that one program serves them all."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from experiments.data.dataset import Dataset


class Part(NamedTuple):
    """Rows of a data set, padding last, on the host or on a device."""

    X: Float[Any, "*seeds rows features"]
    y: Int[Any, "*seeds rows"]


class Sizes(NamedTuple):
    """Sizes of the data in padded arrays: the rows of each part, features and classes.

    Python numbers on the host, arrays as arguments of a program.
    """

    train: Any
    validation: Any
    test: Any
    features: Any
    classes: Any


class Padded(NamedTuple):
    """Padded parts of a data set, with one split per seed, and the sizes of the data in them."""

    train: Part
    validation: Part
    test: Part
    sizes: Sizes


def sizes_of(dataset: Dataset, held_out: float) -> Sizes:
    """Returns the sizes of a data set after a fraction of its training rows is held out."""
    rows, features = dataset.X_train.shape
    validation = max(1, round(held_out * rows))
    test = len(dataset.X_test)
    return Sizes(rows - validation, validation, test, features, dataset.num_classes)


def padded(splits: Sequence[Dataset], held_out: float, capacity: Sizes) -> Padded:
    """Pads the splits of one data set, one per seed, with zeros.

    Args:
        splits: the splits, with rows in random order; all are cut to the smallest, so that all
            seeds take as many steps.
        held_out: the fraction of the training rows for validation, the last ones.
        capacity: the sizes of the arrays.
    """
    sizes = Sizes(*np.min([sizes_of(each, held_out) for each in splits], 0).tolist())
    held = slice(sizes.train, sizes.train + sizes.validation)
    rows = (
        [(s.X_train[: sizes.train], s.y_train[: sizes.train]) for s in splits],
        [(s.X_train[held], s.y_train[held]) for s in splits],
        [(s.X_test[: sizes.test], s.y_test[: sizes.test]) for s in splits],
    )
    train, validation, test = (
        _filled(Part(*map(np.stack, zip(*part, strict=True))), count, capacity.features)
        for part, count in zip(rows, capacity, strict=False)
    )
    return Padded(train, validation, test, Sizes(*map(np.int32, sizes)))


def _filled(part: Part, rows: int, features: int) -> Part:
    missing = rows - part.X.shape[1]
    X = np.pad(part.X, ((0, 0), (0, missing), (0, features - part.X.shape[2])))
    return Part(X, np.pad(part.y, ((0, 0), (0, missing))))
