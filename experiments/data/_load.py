"""From what the user wrote after ``--dataset`` to a dataset."""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from experiments._errors import UserError, unknown
from experiments.data._dataset import Dataset
from experiments.data._digits import load_digits
from experiments.data._hdf5 import holds_clouds, load_clouds
from experiments.data._images import load_folder, load_tar
from experiments.data._meshes import holds_meshes, load_meshes
from experiments.data._npz import load_npz
from experiments.data._tfds import load_tfds

#: Datasets that come with the package, by name: ``seed -> dataset``.
BUNDLED: Mapping[str, Callable[[int], Dataset]] = MappingProxyType({"digits": load_digits})

TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")


def load(source: str, seed: int) -> Dataset:
    """Loads a dataset.

    The same source and seed always give the same split, whoever asks: methods compared under one
    seed are compared on the same rows.

    Args:
        source: a bundled name, ``FILE.npz``, a folder or tar file of images
            ``train|test/CLASS/*.{jpg,png}``, a folder of meshes ``CLASS/train|test/*.off`` or of
            HDF5 files that ``train_files.txt`` and ``test_files.txt`` name, or the name of a
            TensorFlow dataset.
        seed: decides the split, where the source leaves it open.

    Raises:
        UserError: with one line that says what is wrong and what would be right.
    """
    if source in BUNDLED:
        return BUNDLED[source](seed)
    path = Path(source)
    if path.is_dir():
        if holds_clouds(path):
            return load_clouds(path)
        return load_meshes(path, seed) if holds_meshes(path) else load_folder(path)
    if path.suffix == ".npz" or source.endswith(TARS):
        if not path.is_file():
            raise UserError(f"there is no file {source}; give its path from the current folder.")
        return load_npz(path, seed) if path.suffix == ".npz" else load_tar(path)
    if path.is_absolute() or source.startswith("."):
        raise UserError(
            f"there is no folder {source}, and no reader but for .npz, tar and folders."
        )
    sources = [*BUNDLED, "FILE.npz", "a folder or tar of images", "TensorFlow Datasets"]
    if difflib.get_close_matches(source, BUNDLED):
        raise unknown("dataset", source, sources)
    found = load_tfds(source)
    if found is None:
        raise unknown("dataset", source, sources)
    return found
