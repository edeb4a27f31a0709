"""Reading arrays: ``FILE.npz``, or a folder of ``.npy`` files with the same names."""

import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from experiments.data.dataset import Dataset, make_dataset
from experiments.data.doubts import ordering_columns
from experiments.data.reading import reading, refuse_too_large
from experiments.errors import UserError

Array = Shaped[np.ndarray, "..."]

PARTS = ("train", "test")
SPLIT = ("X_train", "y_train", "X_test", "y_test")
WHOLE = ("X", "y")
#: The masks of test rows of WHOLE and their shapes but for the rows; the first one is read.
MASKS = {"test": (), "test4": (4,)}
KEYS = {key.lower(): key for key in (*SPLIT, *WHOLE, *MASKS)}

WAY_OUT = "wanted plain numbers: save them with np.savez(path, X=X, y=y)"

#: Images whose pixels are averaged at once.
AT_ONCE = 4096

#: Per value, beside its stored form: the splits in float32, and their squares.
WORKING_BYTES = 8


def load_npz(path: Path, seed: int, resize: int | None = None) -> Dataset:
    """Reads and splits a file of arrays; nothing in it is ever unpickled.

    Args:
        path: with ``X_train, y_train, X_test, y_test``; or ``X, y`` and optionally ``test``
            (boolean rows, True for the test) or ``test4`` (four such masks, of which the seed
            takes number seed mod 4), in any case. Without a mask the seed draws a quarter of each
            class. Other arrays are not read.
        seed: chooses the split, where the file leaves it open.
        resize: the side of squares that images become; a divisor of theirs. None keeps them.
    """
    with reading(path, WAY_OUT), zipfile.ZipFile(path) as file:
        members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        _check_names(path.name, [each.filename.removesuffix(".npy") for each in file.infolist()])

        def read(name: str) -> Array:
            with file.open(members[name]) as content:
                return np.lib.format.read_array(content, allow_pickle=False)

        sizes = {name: info.file_size for name, info in members.items()}
        arrays = _deciding(path.name, sizes, read)
    notes = _unread(path.name, sizes, arrays)
    return _split(path.name, _resized(path.name, arrays, resize), seed, notes)


def load_npy(path: Path, seed: int, resize: int | None = None) -> Dataset:
    """Reads and splits ``X.npy, y.npy``, ..., named like the arrays of `load_npz`, in a folder."""
    files = _npy_files(path)
    sizes = {name: file.stat().st_size for name, file in files.items()}
    arrays = _deciding(path.name, sizes, lambda name: np.load(files[name], allow_pickle=False))
    notes = _unread(path.name, sizes, arrays)
    return _split(path.name, _resized(path.name, arrays, resize), seed, notes)


def holds_arrays(folder: Path) -> bool:
    """Returns True if a folder has an array of rows."""
    return any(name.lower() in ("x", "x_train") for name in _npy_files(folder))


def _npy_files(folder: Path) -> dict[str, Path]:
    paths = [path for path in folder.iterdir() if path.suffix.lower() == ".npy"]
    _check_names(folder.name, [path.stem for path in paths])
    return {path.stem: path for path in paths}


def _check_names(name: str, members: Sequence[str]) -> None:
    """Raises for two arrays of one name that decides a dataset, in any case of letters."""
    places: dict[str, int] = {}
    for place, each in enumerate(members):
        key = KEYS.get(each.lower())
        if key is not None and (other := places.setdefault(key, place)) != place:
            raise UserError(
                f"{name} holds {members[other]} and {each}, and either may be {key}; wanted one: "
                "take the other out, or rename it."
            )


def _unread(name: str, members: Iterable[str], arrays: Iterable[str]) -> list[str]:
    """A line on the arrays that decide nothing, such as a mask of another name."""
    keys = {*arrays}
    unread = [each for each in members if KEYS.get(each.lower()) not in keys]
    return [f"{name}: not read: {', '.join(map(str, unread))}"] if unread else []


def _deciding(
    name: str, sizes: Mapping[str, int], read: Callable[[str], Array]
) -> dict[str, Array]:
    """Reads the arrays that decide a dataset, out of all members of a file or a folder."""
    members = {KEYS.get(each.lower(), each): each for each in sizes} | {
        each: each for each in sizes
    }
    keys: tuple[str, ...] = SPLIT
    if not all(key in members for key in SPLIT):
        keys = *WHOLE, *[key for key in MASKS if key in members][:1]
    if not all(key in members for key in keys):
        raise UserError(
            f"{name} holds {', '.join(members) or 'nothing'}; wanted X_train, y_train, X_test, "
            "y_test, or X, y with an optional test or test4: np.savez(path, X=X, y=y) saves them."
        )
    arrays = {}
    for key in keys:
        with reading(what := f"{key} of {name}", WAY_OUT):
            refuse_too_large(what, sizes[members[key]], "keep fewer rows")
            arrays[key] = read(members[key])
            refuse_too_large(what, WORKING_BYTES * arrays[key].size, "keep fewer rows")
        if key.startswith("X") and arrays[key].ndim == 3:  # Images without an axis of channels.
            arrays[key] = arrays[key][..., None]
    return arrays


def _resized(name: str, arrays: dict[str, Array], side: int | None) -> dict[str, Array]:
    """Returns the arrays with images as squares of a side, each pixel the mean of a block.

    Raises:
        UserError: for rows that are no images with one label, or sides that it does not divide.
    """
    if side is None:
        return arrays
    for key in [key for key in arrays if key.startswith("X")]:
        X, y = arrays[key], arrays[f"y{key[1:]}"]
        sides = X.shape[1:3]
        if X.ndim != 4 or y.ndim > 2 or len({*sides}) > 1 or sides[0] % side:
            raise UserError(
                f"--resize is {side}, and {key} of {name} has shape {X.shape}, labels {y.shape}; "
                "wanted square images (rows, side, side, channels) with one label each, whose side "
                "is a multiple: leave it out, or resize them yourself."
            )
        arrays[key] = pooled(X, side)
    return arrays


def pooled(X: Array, side: int) -> Array:
    """Returns images whose pixels are the means of blocks, of their type."""
    size = X.shape[1] // side
    blocks = X.reshape(len(X), side, size, side, size, X.shape[3])
    made = np.empty((len(X), side, side, X.shape[3]), X.dtype)
    for begin in range(0, len(X), AT_ONCE):
        means = blocks[begin : begin + AT_ONCE].mean((2, 4), dtype=np.float32)
        is_whole = np.issubdtype(X.dtype, np.integer)
        made[begin : begin + AT_ONCE] = np.round(means) if is_whole else means
    return made


def _split(name: str, arrays: dict[str, Array], seed: int, notes: Sequence[str]) -> Dataset:
    """The dataset of arrays, which are taken out of the dict, to be freed as soon as may be."""
    if "X_train" in arrays:
        _check_order(name, "X_train", arrays["X_train"], arrays["y_train"])
        train, test = ((arrays.pop(f"X_{part}"), arrays.pop(f"y_{part}")) for part in PARTS)
        return make_dataset(name, train, test, notes=notes)
    (key,) = [key for key in MASKS if key in arrays] or [""]
    mask = arrays.get(key)
    if mask is not None and (mask.dtype != bool or mask.shape[:-1] != MASKS[key]):
        raise UserError(
            f"{name}: {key} is {mask.dtype} of shape {mask.shape}; wanted bool of shape "
            f"{'(rows,)' if key == 'test' else '(4, rows)'}, True for the test rows."
        )
    if key == "test4" and mask is not None:
        mask = mask[seed % 4]
    _check_order(name, "X", arrays["X"], arrays["y"])
    return make_dataset(name, (arrays.pop("X"), arrays.pop("y")), mask, seed, notes=notes)


def _check_order(name: str, key: str, X: Array, y: Array) -> None:
    """Raises for a column that orders the rows as the classes do."""
    table = X.ndim == 2 and X.dtype.kind in "fiu" and y.ndim == 1 and len(X) == len(y)
    if table and (leaks := ordering_columns(X, y)):
        raise UserError(
            f"{name}: column {leaks[0]} of {key} orders the rows as their classes do, as an index "
            "does in a sorted file; wanted features: leave it out, or, if it is one, shuffle the "
            "rows."
        )
