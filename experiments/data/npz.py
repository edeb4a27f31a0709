"""Reading ``FILE.npz``: ``X_train, y_train, X_test, y_test``, or ``X, y`` and a split rule."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from experiments.data.dataset import (
    Dataset,
    Test,
    Train,
    count_classes,
    make_dataset,
    split_by_mask,
    split_by_seed,
)
from experiments.errors import UserError
from experiments.reading import reading, refuse_too_large

#: Of a column's size: what varies less is lost in float32, or in the standardization of it.
ROUNDING = 1e-6

Array = Shaped[np.ndarray, "..."]
Arrays = Mapping[str, Array]

SPLIT = ("X_train", "y_train", "X_test", "y_test")
WHOLE = ("X", "y")
#: What tells the test rows of WHOLE; the first that is there is read.
MASKS = ("test", "test4")
KEYS = {key.lower(): key for key in (*SPLIT, *WHOLE, *MASKS)}

WAY_OUT = "wanted plain numbers: save them with np.savez(path, X=X, y=y)"

#: Of each value beside its stored form: as float32, standardized, and its square on the way there.
WORKING_BYTES = 12


def load_npz(path: Path, seed: int) -> Dataset:
    """Reads and splits a file of arrays; nothing in it is ever unpickled.

    Args:
        path: with ``X_train, y_train, X_test, y_test``; or ``X, y`` and optionally ``test``
            (boolean rows, True for the test) or ``test4`` (four such masks, of which the seed
            takes number seed mod 4), in any case. Without a mask the seed draws the split. Whatever
            else is in the file is not read.
        seed: chooses the split, where the file leaves it open.
    """
    with (
        reading(path, WAY_OUT),
        path.open("rb") as content,
        np.lib.npyio.NpzFile(content, allow_pickle=False) as file,
    ):
        arrays, name = _read(file, path.name), path.name
    if "X" in arrays:
        return split_whole(name, arrays, seed)
    X_train, y_train, X_test, y_test = (arrays[key] for key in SPLIT)
    _check_types(name, X_train.dtype, X_test.dtype)
    train, test = _pair(name, X_train, y_train), _pair(name, X_test, y_test)
    return make_dataset(name, train, test, count_classes(name, y_train))


def split_whole(name: str, arrays: Arrays, seed: int) -> Dataset:
    """Rows ``X, y`` that are checked, and split by a mask of the arrays, or by the seed."""
    X, y = _pair(name, arrays["X"], arrays["y"])
    return make_dataset(name, *_split(name, X, y, arrays, seed), count_classes(name, y))


def _read(file: Any, name: str) -> dict[str, Array]:
    """The arrays that decide a dataset, out of all that the file holds."""
    there = {KEYS.get(each.lower(), each): each for each in file.files}
    there |= {each: each for each in file.files}
    if all(key in there for key in SPLIT):
        keys: tuple[str, ...] = SPLIT
    elif all(key in there for key in WHOLE):
        keys = *WHOLE, *[key for key in MASKS if key in there][:1]
    else:
        raise UserError(
            f"{name} holds {', '.join(there) or 'nothing'}; wanted X_train, y_train, X_test, "
            "y_test, or X, y with an optional test or test4: np.savez(path, X=X, y=y) saves them."
        )
    return {key: _array(file, f"{key} of {name}", there[key]) for key in keys}


def _array(file: Any, what: str, member: str) -> Array:
    """An array that fits memory, with what becomes of it."""
    with reading(what, WAY_OUT):
        refuse_too_large(what, file.zip.getinfo(f"{member}.npy").file_size, "keep fewer rows")
        array = file[member]
        refuse_too_large(what, WORKING_BYTES * array.size, "keep fewer rows")
        return array


def _pair(name: str, X: Array, y: Array) -> tuple[Array, Array]:
    """Features of a numeric type, with a channel axis if they are images, and integer labels."""
    if X.ndim == 0 or y.ndim != 1 or len(X) != len(y):
        raise UserError(
            f"{name}: X has shape {X.shape} and y {y.shape}; wanted one label for each row of X: "
            "save them from the same rows."
        )
    if X.dtype.kind not in "fiub" or y.dtype.kind not in "iub":
        raise UserError(
            f"{name}: X has type {X.dtype} and y {y.dtype}; wanted numbers (encode text as "
            "columns) and integer class numbers 0, 1, 2, ... (np.unique(y, "
            "return_inverse=True)[1] makes them)."
        )
    _check_precision(name, X)
    X = X[..., None] if X.ndim == 3 else X
    _check_channels(name, X.shape)
    if X.dtype == np.uint8:
        return X, y
    with np.errstate(over="ignore"):  # Infinities are told of with the other values.
        return X.astype(np.float32), y


def _check_types(name: str, train: np.dtype, test: np.dtype) -> None:
    """Raises for bytes beside numbers of another kind, which are of another scale: 255 for 1.0."""
    kinds = {dtype.kind.replace("u", "i") for dtype in (train, test)}
    if len(kinds) > 1 and 1 in (train.itemsize, test.itemsize):
        raise UserError(
            f"{name}: X_train has type {train} and X_test {test}, and both are standardized by the "
            "training rows; wanted one type and one scale: save both from the same array."
        )


def _check_channels(name: str, shape: tuple[int, ...]) -> None:
    """Raises for square images whose channels come first, which would be taken for rows."""
    if len(shape) == 4 and shape[1] in (1, 3) and shape[2] == shape[3] > 4:
        raise UserError(
            f"{name}: X has shape {shape}, as of images whose channels come first; wanted (rows, "
            "height, width, channels): save X.transpose(0, 2, 3, 1)."
        )


def _check_precision(name: str, X: Array) -> None:
    """Raises for columns whose variation float32 rounds away, as that of times in seconds."""
    if X.ndim != 2 or not X.size or X.dtype.kind not in "fiu" or X.dtype == np.float32:
        return
    low, high = X.min(0).astype(float), X.max(0).astype(float)
    with np.errstate(invalid="ignore"):  # NaN and infinity are told of with the other values.
        lost = np.flatnonzero((high > low) & (high - low < ROUNDING * np.maximum(-low, high)))
    if len(lost):
        column = lost[0]
        raise UserError(
            f"{name}: column {column} of X is from {low[column]:.9g} to {high[column]:.9g}, and "
            "float32 holds seven digits; wanted columns around 0: subtract its mean."
        )


def _split(name: str, X: Array, y: Array, arrays: Arrays, seed: int) -> tuple[Train, Test]:
    key = next((key for key in MASKS if key in arrays), None)
    if key is None:
        return split_by_seed(X, y, seed)
    mask, shape = arrays[key], (len(X),) if key == "test" else (4, len(X))
    if mask.dtype != bool or mask.shape != shape:
        raise UserError(
            f"{name}: {key} is {mask.dtype} of shape {mask.shape}; wanted bool of shape {shape}, "
            "True for the test rows."
        )
    return split_by_mask(X, y, mask if key == "test" else mask[seed % 4])
