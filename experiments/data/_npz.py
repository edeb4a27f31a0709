"""Reading ``FILE.npz``: ``X_train, y_train, X_test, y_test``, or ``X, y`` and a split rule."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from experiments._errors import UserError
from experiments.data._dataset import Dataset, make_dataset, split_by_mask, split_by_seed

Arrays = Mapping[str, Shaped[np.ndarray, "..."]]

SPLIT = ("X_train", "y_train", "X_test", "y_test")


def load_npz(path: Path, seed: int) -> Dataset:
    """Reads and splits a file of arrays; nothing in it is ever unpickled.

    Args:
        path: with ``X_train, y_train, X_test, y_test``; or ``X, y`` and optionally ``test``
            (boolean rows, True for the test) or ``test4`` (four such masks, of which the seed
            takes number seed mod 4). Without a mask the seed draws the split.
        seed: chooses the split, where the file leaves it open.
    """
    arrays = _read(path)
    name = path.name
    if all(key in arrays for key in SPLIT):
        X_train, y_train, X_test, y_test = (arrays[key] for key in SPLIT)
        train, test = _pair(name, X_train, y_train), _pair(name, X_test, y_test)
        return make_dataset(name, train, test)
    if "X" not in arrays or "y" not in arrays:
        raise UserError(
            f"{name} holds {', '.join(arrays) or 'nothing'}; wanted X_train, y_train, X_test, "
            "y_test, or X, y with an optional test or test4."
        )
    X, y = _pair(name, arrays["X"], arrays["y"])
    classes = int(y.max(initial=0)) + 1
    return make_dataset(
        name, *_split(name, X, y, arrays, seed), num_classes=_sane(name, y, classes)
    )


def _read(path: Path) -> dict[str, Shaped[np.ndarray, "..."]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"cannot read {path}: {_one_line(error)}.") from None
    except ValueError as error:
        raise UserError(
            f"cannot read {path}: {_one_line(error)}. Python objects are never unpickled; "
            "save plain numbers with np.savez."
        ) from None


def _pair(name: str, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features of a numeric type, with a channel axis if they are images, and integer labels."""
    if X.ndim == 0 or y.ndim != 1 or len(X) != len(y):
        raise UserError(
            f"{name}: X has shape {X.shape} and y {y.shape}; wanted one label for each row of X."
        )
    if X.dtype.kind not in "fiub":
        raise UserError(f"{name}: X has type {X.dtype}; wanted numbers (encode text as columns).")
    if y.dtype.kind not in "iub":
        raise UserError(
            f"{name}: y has type {y.dtype}; wanted integer class numbers 0, 1, 2, ... "
            "(np.unique(y, return_inverse=True)[1] makes them)."
        )
    X = X[..., None] if X.ndim == 3 else X
    return X if X.dtype == np.uint8 else X.astype(np.float32), y


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


def _sane(name: str, y: np.ndarray, classes: int) -> int:
    if classes > max(len(y), 1):
        raise UserError(
            f"{name}: labels reach {classes - 1} with {len(y)} rows; wanted class numbers "
            "0, 1, 2, ... (np.unique(y, return_inverse=True)[1] makes them)."
        )
    return classes


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
