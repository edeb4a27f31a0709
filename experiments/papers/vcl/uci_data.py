"""The small data sets of the UCI experiments: a folder of files, or variants of the digits."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from experiments.config import UserError
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.papers.data import subset

#: ``seed -> dataset``.
Load = Callable[[int], Dataset]

WANTED = (
    "the UCI experiments need --data-dir, a folder with one NAME.npz per data set (X, y and the "
    "masks test or test4; see the command datasets): those of 1,000 rows and more of "
    "Fernandez-Delgado et al. 2014, from https://archive.ics.uci.edu. The preset smoke needs none."
)

#: Classes of the smoke presets' sets, as functions of the digit.
SMOKE: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "digits": lambda digit: digit,
    "digits-odd": lambda digit: digit % 2,
    "digits-thirds": lambda digit: digit % 3,
}


def find_sets(data_dir: Path | None, bundled: bool) -> dict[str, Load]:
    """Finds the data sets, by name.

    Args:
        data_dir: the folder of the files.
        bundled: if True, the digits replace a missing folder.
    """
    if data_dir is None and bundled:
        return {name: partial(_digits, name) for name in SMOKE}
    paths = [] if data_dir is None else sorted(data_dir.glob("*.npz"))
    if not paths:
        raise UserError(WANTED)
    return {path.stem: partial(load, str(path)) for path in paths}


def split(load_set: Load, seed: int, rows: int, test_rows: int) -> Dataset:
    """Returns the split of a seed, with rows in random order and as vectors."""
    data = subset(load_set(seed), rows, test_rows, seed)
    X_train, X_test = (X.reshape(len(X), -1) for X in (data.X_train, data.X_test))
    return data._replace(X_train=X_train, X_test=X_test)


def _digits(name: str, seed: int) -> Dataset:
    """Makes a variant of the digits with its own columns and classes, so that sizes differ."""
    data, classes_of = load("digits", seed), SMOKE[name]
    columns = 8 - list(SMOKE).index(name)
    y_train, y_test = classes_of(data.y_train), classes_of(data.y_test)
    return data._replace(
        X_train=data.X_train[:, :, :columns],
        y_train=y_train,
        X_test=data.X_test[:, :, :columns],
        y_test=y_test,
        name=name,
        num_classes=int(y_train.max()) + 1,
    )
