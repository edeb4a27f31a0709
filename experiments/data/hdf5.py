"""Reading clouds of points from HDF5 files that ``train_files.txt`` and ``test_files.txt`` name."""

import importlib
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from experiments.data.dataset import Dataset, count_classes, make_dataset
from experiments.data.meshes import POINTS
from experiments.reading import reading, refuse_too_large

Clouds = Float[np.ndarray, "rows points 3"]
Labels = Int[np.ndarray, " rows"]

LISTS = ("train_files.txt", "test_files.txt")


def holds_clouds(path: Path) -> bool:
    """Whether a folder has lists of HDF5 files."""
    return (path / LISTS[0]).is_file()


def load_clouds(path: Path) -> Dataset:
    """A dataset of clouds (rows, points, 3) from a folder of HDF5 files and two lists of them.

    Each file holds ``data`` (rows, points or more, 3) and ``label`` (rows,) or (rows, 1). The files
    of ModelNet40 have y upwards and 2,048 points, in the unit ball already; they stay as they are.

    Args:
        path: the folder.

    Source: Wang et al. 2019, section 5.1, whose experiments read these files.
    """
    train, test = (_read_part(path / name) for name in LISTS)
    return make_dataset(path.name, train, test, count_classes(path.name, train[1]))


def _read_part(names: Path) -> tuple[Clouds, Labels]:
    """The clouds and labels of all files of a part, in the order of its list."""
    with reading(names, "wanted the name of an HDF5 file in each line, in UTF-8"):
        lines = filter(str.strip, names.read_text(encoding="utf-8").splitlines())
        # The lists name the files from another folder than their own.
        files = [names.parent / Path(line.strip()).name for line in lines]
        clouds, labels = zip(*map(_read, files), strict=True)
        return np.concatenate(clouds), np.concatenate(labels)


def _read(path: Path) -> tuple[Clouds, Labels]:
    """The clouds of a file, cut to their first points, and their labels."""
    h5py = importlib.import_module("h5py")
    what = f"data and label of {path}"
    way_out = f"wanted coordinates (rows, {POINTS} or more, 3) and one class number a row"
    with reading(what, way_out), h5py.File(path) as file:
        data, labels = file["data"], file["label"]
        size = len(data) * POINTS * 3 * (data.dtype.itemsize + 8)
        refuse_too_large(path, size, "keep fewer rows")
        clouds, numbers = data[:, :POINTS], labels[()].reshape(-1)
        right = clouds.shape == (len(data), POINTS, 3) and numbers.shape == (len(data),)
        if not right or clouds.dtype.kind not in "fiu" or numbers.dtype.kind not in "iu":
            raise ValueError(
                f"data are {clouds.dtype} of {clouds.shape}, label {numbers.dtype} of "
                f"{numbers.shape}"
            )
        return clouds.astype(np.float32), numbers.astype(np.int64)
