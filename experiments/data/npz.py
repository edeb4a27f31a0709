"""Reading ``FILE.npz``: ``X_train, y_train, X_test, y_test``, or ``X, y`` and a split rule."""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Shaped

from experiments.data.dataset import (
    Dataset,
    count_classes,
    make_dataset,
    split_by_mask,
    split_by_seed,
)
from experiments.errors import UserError
from experiments.reading import reading, refuse_too_large

#: Of a column's size: what varies less is lost in float32, or in the standardization of it.
ROUNDING = 1e-6

Arrays = Mapping[str, Shaped[np.ndarray, "..."]]


@runtime_checkable
class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """So many bytes, or all."""


SPLIT = ("X_train", "y_train", "X_test", "y_test")
WHOLE = ("X", "y")
#: What tells the test rows of WHOLE; the first that is there is read.
MASKS = ("test", "test4")
KEYS = (*SPLIT, *WHOLE, *MASKS)

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
    arrays, name = _read(path), path.name
    if "X" not in arrays:
        X_train, y_train, X_test, y_test = (arrays[key] for key in SPLIT)
        _check_types(name, X_train.dtype, X_test.dtype)
        _check_precision(name, X_train)
        train, test = _pair(name, X_train, y_train), _pair(name, X_test, y_test)
        return make_dataset(name, train, test)
    return split_whole(name, arrays["X"], arrays["y"], arrays, seed)


def split_whole(name: str, X: np.ndarray, y: np.ndarray, arrays: Arrays, seed: int) -> Dataset:
    """Rows that are checked, and split by a mask of the arrays, or by the seed."""
    _check_precision(name, X)
    X, y = _pair(name, X, y)
    classes = count_classes(name, y)
    return make_dataset(name, *_split(name, X, y, arrays, seed), num_classes=classes)


def _read(path: Path) -> dict[str, Shaped[np.ndarray, "..."]]:
    """The arrays that decide a dataset, out of all that the file holds."""
    with reading(path, WAY_OUT):
        with path.open("rb") as start:
            if start.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("it holds a single array, as np.save writes it")
        with zipfile.ZipFile(path) as file:
            there = {name.removesuffix(".npy"): name for name in file.namelist()}
            members = {_key(name): member for name, member in there.items()} | there
            keys = _chosen(path.name, list(members))
            return {key: _array(file, f"{key} of {path.name}", members[key]) for key in keys}


def _key(name: str) -> str:
    """The key that is read of one that may differ from it by its case."""
    found = [key for key in KEYS if key.lower() == name.lower()]
    return found[0] if found else name


def _chosen(name: str, there: list[str]) -> tuple[str, ...]:
    if all(key in there for key in SPLIT):
        return SPLIT
    if not all(key in there for key in WHOLE):
        raise UserError(
            f"{name} holds {', '.join(there) or 'nothing'}; wanted X_train, y_train, X_test, "
            "y_test, or X, y with an optional test or test4: np.savez(path, X=X, y=y) saves them."
        )
    return *WHOLE, *[key for key in MASKS if key in there][:1]


def _array(file: zipfile.ZipFile, what: str, member: str) -> Shaped[np.ndarray, "..."]:
    """An array, read once its header is known to be true and to fit memory."""
    with reading(what, WAY_OUT):
        with file.open(member) as header:
            shape, dtype = _header(header)
            held = file.getinfo(member).file_size - header.tell()
        values = math.prod(shape)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are never unpickled")
        if values * dtype.itemsize > held or min(shape, default=0) < 0:
            raise ValueError(f"its header says {shape} of {dtype}, and {held} bytes follow")
        refuse_too_large(what, values * (dtype.itemsize + WORKING_BYTES), "keep fewer rows")
        with file.open(member) as content:
            return np.lib.format.read_array(content, allow_pickle=False)


def _header(file: Readable) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and the type that an array's header tells."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"its format is {version}, which plain numbers do not need")
    return shape, dtype


def _pair(name: str, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features of a numeric type, with a channel axis if they are images, and integer labels."""
    if X.ndim == 0 or y.ndim != 1 or len(X) != len(y):
        raise UserError(
            f"{name}: X has shape {X.shape} and y {y.shape}; wanted one label for each row of X: "
            "save them from the same rows."
        )
    if X.dtype.kind not in "fiub":
        raise UserError(f"{name}: X has type {X.dtype}; wanted numbers (encode text as columns).")
    if y.dtype.kind not in "iub":
        raise UserError(
            f"{name}: y has type {y.dtype}; wanted integer class numbers 0, 1, 2, ... "
            "(np.unique(y, return_inverse=True)[1] makes them)."
        )
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


def _check_precision(name: str, X: np.ndarray) -> None:
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


def _split(
    name: str, X: np.ndarray, y: np.ndarray, arrays: Arrays, seed: int
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    if "test" in arrays:
        return split_by_mask(X, y, _mask(name, "test", arrays["test"], (len(X),)))
    if "test4" in arrays:
        return split_by_mask(X, y, _mask(name, "test4", arrays["test4"], (4, len(X)))[seed % 4])
    return split_by_seed(X, y, seed)


def _mask(name: str, key: str, mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if mask.dtype != bool or mask.shape != shape:
        raise UserError(
            f"{name}: {key} is {mask.dtype} of shape {mask.shape}; wanted bool of shape {shape}, "
            "True for the test rows."
        )
    return mask
