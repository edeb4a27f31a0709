"""Data that --dataset reads, beside the bundled datasets:

FILE.npz    arrays X_train, y_train, X_test, y_test; or X, y with an optional boolean test (rows) or
            test4 (4 x rows; seed s takes row s mod 4), else a quarter of each class is drawn by the
            seed. X is (rows, features), (rows, height, width) or (rows, height, width, channels) of
            any numeric type. y holds whole numbers, words, or one-hot rows. Never unpickled
FOLDER      files X.npy, y.npy, ... of the same names
FILE.csv    a table of numbers with one column of classes, words or whole numbers. Commas,
            semicolons, tabs or bars separate its columns; decimal commas are read. The first line
            may have the columns' names. The classes are in the column that --label names; else in
            the one called label, class, target or y, in any case; else in the only column of words;
            else in the last. A first column that only numbers the rows is left out. A quarter of
            each class is drawn by the seed. Also .csv.gz and .tsv
FOLDER      images train|test/CLASS/*.{jpg,png,bmp,webp,tiff} (or val for test); or CLASS/* alone,
            of which a quarter of each class is drawn by the seed. They have one size and 8 bits;
            --resize makes them squares of one size. Images in extra/CLASS are training images too.
            The paper items of ImageNet read pictures of any size while they train
FILE.zip    an archive of such a folder; also .tar, .tar.gz, .tar.xz, .tar.bz2
FOLDER      meshes CLASS/train|test/*.off, as ModelNet40 comes; 1,024 points of each, drawn by the
            seed uniformly by area, centred and scaled into the unit ball
FOLDER      point clouds in HDF5 files with data (rows, points, 3) and label (rows, 1), as
            ModelNet40 is passed on, named in train_files.txt and test_files.txt; the first 1,024
            points of each
NAME        any of the TensorFlow Datasets that is prepared in the format array_record, in
            TFDS_DATA_DIR or ~/tensorflow_datasets; with classes, and rows of one shape. Needs no
            TensorFlow, but pip install 'jaxnorm[tfds]'. More than 2 GiB are read while training

Suffixes may be in any case. Columns are standardized on the training rows, images by channel.
"""

from collections.abc import Callable
from pathlib import Path

from experiments.config import UserError
from experiments.data.arrays import holds_arrays, load_npy, load_npz
from experiments.data.bundled import BUNDLED
from experiments.data.clouds import holds_clouds, holds_meshes, load_clouds, load_meshes
from experiments.data.csv import load_csv
from experiments.data.dataset import Dataset
from experiments.data.images import load_images
from experiments.data.source import ARCHIVES, TABLES, find_source, unknown_source
from experiments.data.tfds import load_tfds

#: The kinds of folders that hold no images, with their readers.
FOLDERS = {holds_arrays: load_npy, holds_clouds: load_clouds, holds_meshes: load_meshes}


def load(
    source: str,
    seed: int,
    train_rows: int | None = None,
    test_rows: int | None = None,
    label: str | None = None,
    resize: int | None = None,
) -> Dataset:
    """Loads a dataset, with all of its rows or some.

    The same source and seed always give the same split, whoever asks: methods compared under one
    seed are compared on the same rows.

    Args:
        source: a bundled name, or one of the sources above.
        seed: decides the split, where the source leaves it open.
        train_rows: how many training rows are kept, standardized anew; they are drawn without the
            seed. None for all.
        test_rows: how many test rows are kept, likewise.
        label: the name of a table's column of classes.
        resize: the side of the squares that images become.

    Raises:
        UserError: with one line that says what is wrong and what would be right.
    """
    return _load(source, seed, label, resize).with_rows(train_rows, test_rows)


def _load(source: str, seed: int, label: str | None, resize: int | None) -> Dataset:
    path = find_source(source)
    reader = None if path is None else _reader(path)
    if label is not None and reader is not load_csv:
        raise UserError(f"--label is {label!r}, and {source} is no table; leave the flag out.")
    if resize is not None and reader is not load_images:
        raise UserError(f"--resize is {resize}, and {source} has no images; leave the flag out.")
    if path is None or reader is None:
        found = BUNDLED[source](seed) if source in BUNDLED else load_tfds(source)
        if found is None:
            raise unknown_source(source)
        return found
    flag = {load_csv: label, load_images: resize}
    return reader(path, seed, flag[reader]) if reader in flag else reader(path, seed)


def _reader(path: Path) -> Callable[..., Dataset]:
    """The reader of a file, by its suffix, or of a folder, by what it holds."""
    name = path.name.lower()
    if path.is_dir():
        return next((read for holds, read in FOLDERS.items() if holds(path)), load_images)
    if name.endswith(TABLES):
        return load_csv
    return load_images if name.endswith(ARCHIVES) else load_npz


def describe_sources() -> str:
    """The bundled datasets with their sizes, and the formats that are read from files."""
    lines = []
    for name in BUNDLED:
        data = load(name, seed=0)
        shape = " x ".join(map(str, data.X_train.shape[1:]))
        lines.append(
            f"{name:<11} bundled: {len(data.X_train)} training and {len(data.X_test)} test rows of "
            f"{shape}, {data.num_classes} classes, split by the seed"
        )
    return "\n".join([*lines, "", (__doc__ or "").strip()])
