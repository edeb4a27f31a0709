"""From what the user wrote after ``--dataset`` to a dataset."""

from collections.abc import Callable, Mapping
from pathlib import Path

from experiments.data.characters import load_characters
from experiments.data.csv import load_csv
from experiments.data.dataset import Dataset
from experiments.data.digits import load_digits
from experiments.data.hdf5 import holds_clouds, load_clouds
from experiments.data.images import load_folder, load_tar
from experiments.data.meshes import holds_meshes, load_meshes
from experiments.data.npz import load_npz
from experiments.data.source import TARS, check_source, unknown_source
from experiments.data.tfds import load_tfds

#: Datasets that come with the package, by name: ``seed -> dataset``.
BUNDLED: Mapping[str, Callable[[int], Dataset]] = {"digits": load_digits, "python": load_characters}

#: The readers of files whose split the seed may decide.
READERS: Mapping[str, Callable[[Path, int], Dataset]] = {".npz": load_npz, ".csv": load_csv}


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
    check_source(source)
    if source in BUNDLED:
        return BUNDLED[source](seed)
    path = Path(source)
    if path.is_dir():
        if holds_clouds(path):
            return load_clouds(path)
        return load_meshes(path, seed) if holds_meshes(path) else load_folder(path)
    if source.endswith(TARS):
        return load_tar(path)
    if path.suffix in READERS:
        return READERS[path.suffix](path, seed)
    found = load_tfds(source)
    if found is None:
        raise unknown_source(source)
    return found
