"""From what the user wrote after ``--dataset`` to a dataset."""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from experiments.data.characters import load_characters
from experiments.data.csv import load_csv
from experiments.data.dataset import Dataset
from experiments.data.digits import load_digits
from experiments.data.hdf5 import holds_clouds, load_clouds
from experiments.data.images import load_folder, load_tar
from experiments.data.meshes import holds_meshes, load_meshes
from experiments.data.npz import load_npz
from experiments.data.tfds import load_tfds
from experiments.errors import UserError, unknown
from experiments.reading import reading

#: Datasets that come with the package, by name: ``seed -> dataset``.
BUNDLED: Mapping[str, Callable[[int], Dataset]] = MappingProxyType(
    {"digits": load_digits, "python": load_characters}
)

#: The readers of files whose split the seed may decide.
SPLIT_BY_SEED: Mapping[str, Callable[[Path, int], Dataset]] = MappingProxyType(
    {".npz": load_npz, ".csv": load_csv}
)

TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")


def load(
    source: str, seed: int, train_rows: int | None = None, test_rows: int | None = None
) -> Dataset:
    """Loads a dataset, with all of its rows or some.

    The same source and seed always give the same split, whoever asks: methods compared under one
    seed are compared on the same rows.

    Args:
        source: a bundled name, ``FILE.npz``, ``FILE.csv``, a folder or tar file of images
            ``train|test/CLASS/*.{jpg,png}``, a folder of meshes ``CLASS/train|test/*.off`` or of
            HDF5 files that ``train_files.txt`` and ``test_files.txt`` name, or the name of a
            TensorFlow dataset.
        seed: decides the split, where the source leaves it open.
        train_rows: how many training rows are kept, standardized anew; they are drawn without the
            seed. None for all.
        test_rows: how many test rows are kept, likewise.

    Raises:
        UserError: with one line that says what is wrong and what would be right.
    """
    return _load(source, seed).with_rows(train_rows, test_rows)


def _load(source: str, seed: int) -> Dataset:
    if source in BUNDLED:
        return BUNDLED[source](seed)
    path = Path(source)
    with reading(f"{source[:80]!r}", "wanted a name, a file or a folder: see the command datasets"):
        is_folder, is_file = path.is_dir(), path.is_file()
    if is_folder:
        if holds_clouds(path):
            return load_clouds(path)
        return load_meshes(path, seed) if holds_meshes(path) else load_folder(path)
    if path.suffix in SPLIT_BY_SEED or source.endswith(TARS):
        if not is_file:
            raise UserError(f"there is no file {source}; give its path from the current folder.")
        read = SPLIT_BY_SEED.get(path.suffix)
        return load_tar(path) if read is None else read(path, seed)
    if path.is_absolute() or source.startswith("."):
        raise UserError(
            f"there is no folder {source}, and no reader but for .npz, .csv, tar and folders; give "
            "one of these, or a name that the command datasets lists."
        )
    sources = [*BUNDLED, "FILE.npz", "FILE.csv", "a folder or tar of images", "TensorFlow Datasets"]
    if difflib.get_close_matches(source.lower(), BUNDLED):
        raise unknown("dataset", source, sources)
    found = load_tfds(source)
    if found is None:
        raise unknown("dataset", source, sources)
    return found
