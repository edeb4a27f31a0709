"""Reading clouds of points from HDF5 files that ``train_files.txt`` and ``test_files.txt`` name."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from experiments.data.dataset import Dataset, make_dataset
from experiments.data.meshes import POINTS
from experiments.errors import UserError
from experiments.reading import reading, refuse_too_large

Clouds = Float[np.ndarray, "rows points 3"]
Labels = Int[np.ndarray, " rows"]


def holds_clouds(path: Path) -> bool:
    """Whether a folder has lists of HDF5 files."""
    return (path / _list_of("train")).is_file()


def load_clouds(path: Path) -> Dataset:
    """A dataset of clouds (rows, points, 3) from a folder of HDF5 files and two lists of them.

    Each file holds ``data`` (rows, points or more, 3) and ``label`` (rows,) or (rows, 1). The files
    of ModelNet40 have y upwards and 2,048 points, in the unit ball already; they stay as they are.

    Args:
        path: the folder.

    Source: Wang et al. 2019, section 5.1, whose experiments read these files.
    """
    train, test = (_read_part(path, part) for part in ("train", "test"))
    return make_dataset(path.name, train, test)


def _list_of(part: str) -> str:
    return f"{part}_files.txt"


def _read_part(path: Path, part: str) -> tuple[Clouds, Labels]:
    """The clouds and labels of all files of a part, in the order of its list."""
    name = _list_of(part)
    with reading(path / name, "wanted a file's name in each line: write them in UTF-8"):
        text = (path / name).read_text(encoding="utf-8") if (path / name).is_file() else ""
    lines = text.splitlines()
    # The lists name the files from another folder than this one.
    files = [path / Path(line.strip()).name for line in lines if line.strip()]
    if not files:
        raise UserError(f"{path.name} has no {name} that names its HDF5 files; both parts need it.")
    clouds, labels = zip(*(_read(file) for file in files), strict=True)
    return np.concatenate(clouds), np.concatenate(labels)


def _read(path: Path) -> tuple[Clouds, Labels]:
    """The clouds of a file, cut to their first points, and their labels."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError:
        raise UserError(f"to read {path}, pip install 'jaxnorm[experiments]' (h5py).") from None
    what = f"data and label of {path}"
    with (
        reading(what, "wanted numbers of these names: save them with h5py"),
        h5py.File(path) as file,
    ):
        data, labels = file["data"], file["label"]
        _check(path, data.shape, data.dtype, labels)
        size = len(data) * POINTS * 3 * (data.dtype.itemsize + 8)
        refuse_too_large(path, size, "keep fewer rows")
        return data[:, :POINTS].astype(np.float32), labels[()].reshape(-1).astype(np.int64)


def _check(path: Path, shape: tuple[int, ...], dtype: np.dtype, labels: Any) -> None:
    """Raises for anything but clouds of so many points or more, and their classes."""
    if len(shape) < 2:
        raise ValueError(f"data has shape {shape}")
    read = (shape[0], min(shape[1], POINTS), *shape[2:])
    if read != (shape[0], POINTS, 3) or labels.size != shape[0]:
        raise UserError(
            f"{path} holds data of shape {read} (cut to {POINTS} points) and label of "
            f"{labels.shape}; wanted (rows, {POINTS}, 3) and (rows, 1): save one label a cloud."
        )
    if dtype.kind not in "fiu":
        raise UserError(
            f"{path} holds data of type {dtype}; wanted coordinates: save them as float32."
        )
    if labels.dtype.kind not in "iu":
        raise UserError(
            f"{path} holds labels of type {labels.dtype}; wanted class numbers: save them as int64."
        )
