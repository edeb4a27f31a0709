"""The formats of people's data, in one table, and the loading of a dataset by name or path."""

import difflib
import importlib
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from experiments.data.arrays import holds_arrays, load_npy, load_npz
from experiments.data.bundled import BUNDLED
from experiments.data.clouds import holds_clouds, holds_meshes, load_clouds, load_meshes
from experiments.data.dataset import Dataset
from experiments.data.reading import reading
from experiments.errors import UserError, unknown


class Format(NamedTuple):
    """A format of files or folders.

    Attributes:
        name: its name in help and refusals.
        contents: the contents of such a file or folder, for the command datasets.
        read: the reader, ``(path, seed)``, and the value of the flag if it takes one.
        suffixes: the suffixes of files in lower case; () for a folder.
        is_in: True for a folder in this format.
        flag: the setting that the reader takes, or empty.
    """

    name: str
    contents: str
    read: Callable[..., Dataset]
    suffixes: tuple[str, ...] = ()
    is_in: Callable[[Path], bool] = lambda folder: False
    flag: str = ""


def _later(module: str, function: str) -> Callable[..., Any]:
    """Makes a reader whose file is imported when it is called, with the libraries of its format."""

    def read(*arguments: object) -> Any:
        reader = getattr(importlib.import_module(f"experiments.data.{module}"), function)
        return reader(*arguments)

    return read


_CSV, _IMAGES = _later("csv", "load_csv"), _later("images", "load_images")

#: All formats; a folder has the first that is in it. Help, refusals and pages name what is here.
FORMATS = (
    Format(
        "FILE.npz",
        "arrays X_train, y_train, X_test, y_test; or X, y with an optional boolean test (rows) or "
        "test4 (4 x rows; seed s takes row s mod 4), else a quarter of each class is drawn by the "
        "seed. X is (rows, features), (rows, height, width) or (rows, height, width, channels) of "
        "any numeric type. y holds whole numbers, words, or one-hot rows; or, in the shape (rows, "
        "height, width) of images, a class number at each pixel. --resize makes square images "
        "smaller by means of blocks. Never unpickled.",
        load_npz,
        suffixes=(".npz",),
        flag="resize",
    ),
    Format(
        "FOLDER of .npy",
        "X.npy, y.npy, ... of the same names.",
        load_npy,
        is_in=holds_arrays,
        flag="resize",
    ),
    Format(
        "FILE.csv",
        "a table of numbers with one column of classes, words or whole numbers, in UTF-8, with "
        "decimal points and commas between columns (.tsv: tabs). The first line has the columns' "
        "names. The classes are in the column that --label names; else in the one called label, "
        "class, target or y, in any case; else in the only column of words. A first column without "
        "a name is left out, and so is any column that orders the rows as the classes do. A "
        "quarter of each class is drawn by the seed.",
        _CSV,
        suffixes=(".csv", ".csv.gz", ".tsv", ".tsv.gz"),
        flag="label",
    ),
    Format(
        "FOLDER of meshes",
        "CLASS/train|test/*.off, as ModelNet40 comes; 1,024 points of each, drawn by the seed "
        "uniformly by area, centred and scaled into the unit ball.",
        load_meshes,
        is_in=holds_meshes,
    ),
    Format(
        "FOLDER of point clouds",
        "HDF5 files with data (rows, points, 3) and label (rows, 1), as ModelNet40 is passed on, "
        "named in train_files.txt and test_files.txt; the first 1,024 points of each.",
        load_clouds,
        is_in=holds_clouds,
    ),
    Format(
        "FOLDER of images",
        "train|test/CLASS/*.{jpg,png,bmp,webp,tiff} (or val for test); or CLASS/* alone, of which "
        "a quarter of each class is drawn by the seed. They have one size and 8 bits; --resize "
        "makes them squares of one size. Images in extra/CLASS are training images too. The paper "
        "items of ImageNet read pictures of any size while they train.",
        _IMAGES,
        is_in=Path.is_dir,
        flag="resize",
    ),
    Format(
        "FILE.zip",
        "an archive of a folder of images.",
        _IMAGES,
        suffixes=(".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2"),
        flag="resize",
    ),
)
SUFFIXES = tuple(suffix for each in FORMATS for suffix in each.suffixes)

#: The datasets that are read by name, besides the bundled ones.
TFDS = "NAME of a TensorFlow dataset"
TFDS_CONTENTS = (
    "any that is prepared in the format array_record, in TFDS_DATA_DIR or ~/tensorflow_datasets; "
    "with classes, and rows of one shape. Needs no TensorFlow, but pip install 'jaxnorm[tfds]'. "
    "More than 2 GiB are read while training."
)


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
        source: a bundled name, a path in one of the `FORMATS`, or a TensorFlow dataset.
        seed: decides the split, where the source leaves it open.
        train_rows: how many training rows are kept, standardized anew; they are drawn without the
            seed. None for all.
        test_rows: how many test rows are kept, likewise.
        label: the name of a table's column of classes.
        resize: the side of the squares that images become.

    Raises:
        UserError: with one line that says what is wrong and what would be right.
    """
    return _load(source, seed, {"label": label, "resize": resize}).with_rows(train_rows, test_rows)


def of_one_state(source: str, read: Callable[[int], Dataset]) -> Callable[[int], Dataset]:
    """Returns ``read``, which refuses a seed if a file of the source changed since its first call.

    Args:
        source: as for `load`.
        read: ``seed -> dataset``, which reads the source.
    """
    first = cache(lambda: _state(source))

    def of_seed(seed: int) -> Dataset:
        before, data = first(), read(seed)
        if _state(source) != before:
            raise UserError(
                f"{source} was edited while it was read, and each seed reads it; finished runs are "
                "kept, and the same command begins with what is there now."
            )
        return data

    return of_seed


def _state(source: str) -> list[tuple[str, int, int]]:
    """Returns the name, the size and the time of the last change of each file of a source."""
    path = find_source(source)
    if path is None:
        return []
    files = [path]
    if path.is_dir():  # Reports may stand beside arrays.
        inside = path.glob("*.npy") if holds_arrays(path) else path.rglob("*")
        files = sorted(file for file in inside if file.is_file())
    found = ((str(file), file.stat()) for file in files)
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in found]


def _load(source: str, seed: int, flags: dict[str, str | int | None]) -> Dataset:
    path = find_source(source)
    kind = None if path is None else format_of(path)
    for flag, value in flags.items():
        if value is not None and (kind is None or kind.flag != flag):
            takers = ", ".join(each.name for each in FORMATS if each.flag == flag)
            raise UserError(f"--{flag} is {value!r}, for {takers}; {source} is none: leave it out.")
    if path is not None and kind is not None:
        return kind.read(path, seed, flags[kind.flag]) if kind.flag else kind.read(path, seed)
    data: Dataset | None
    data = BUNDLED[source](seed) if source in BUNDLED else _later("tfds", "load_tfds")(source)
    if data is None:
        raise unknown_source(source)
    if Path(source).exists():
        note = f"{source} is the dataset of that name, not what lies here: that is ./{source}."
        data = data._replace(notes=(*data.notes, note))
    return data


def find_source(source: str) -> Path | None:
    """The file or folder of a dataset; None for a bundled name or maybe a TensorFlow dataset.

    Raises:
        UserError: for a file or a folder that does not exist, and for a bundled name misspelt.
    """
    with reading(f"{source[:80]!r}", "wanted a name, a file or a folder: see the command datasets"):
        path = Path(source).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    readable = path.name.lower().endswith(SUFFIXES)
    if source in BUNDLED:
        return None
    if is_folder or (is_file and readable):
        return path
    if readable:
        raise UserError(f"there is no file {source}; give its path from the current folder.")
    if is_file or path.is_absolute() or source.startswith("."):
        raise UserError(
            f"there is no folder {source}, and no reader of files but {', '.join(SUFFIXES)}; give "
            "one of these, or a name that the command datasets lists."
        )
    if difflib.get_close_matches(source.lower(), BUNDLED):
        raise unknown_source(source)
    return None


def unknown_source(source: str) -> UserError:
    """The error for a name of no dataset."""
    return unknown("dataset", source, (*BUNDLED, *(each.name for each in FORMATS), TFDS))


def format_of(path: Path) -> Format:
    """The format of a file, by its suffix, or of a folder, by its contents."""
    name = path.name.lower()
    if path.is_dir():
        return next(each for each in FORMATS if each.is_in(path))
    return next(each for each in FORMATS if name.endswith(each.suffixes))


def describe_sources() -> str:
    """The bundled datasets with their sizes, and the formats that are read from files."""
    lines = []
    for name in BUNDLED:
        data = load(name, seed=0)
        shape = " x ".join(map(str, data.X_train.shape[1:]))
        lines.append(
            f"{name}: bundled, {len(data.X_train)} training and {len(data.X_test)} test rows of "
            f"{shape}, {data.num_classes} classes{' of pixels' * data.has_label_maps}, split by "
            "the seed"
        )
    for each in FORMATS:
        also = f" Also {', '.join(each.suffixes[1:])}." if each.suffixes[1:] else ""
        lines.append(f"{each.name}: {each.contents}{also}")
    lines.append(f"{TFDS}: {TFDS_CONTENTS}")
    wrapped = (textwrap.fill(each, 100, subsequent_indent="    ") for each in lines)
    standardized = "Columns are standardized on the training rows, images by channel."
    return "\n".join([*wrapped, "", f"Suffixes may be in any case. {standardized}"])
