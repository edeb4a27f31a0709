"""TensorFlow Datasets without TensorFlow: files in the array_record format, read at random."""

import importlib
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from experiments.data.dataset import Dataset, Labels, Rows, make_dataset
from experiments.data.reading import reading
from experiments.data.stream import Source, Stream, fingerprint, make_streamed
from experiments.errors import UserError, library

#: As float32; datasets up to this size are read once and stay on the device.
IN_MEMORY_BYTES = 2 << 30

PREPARE = "python -c \"import tensorflow_datasets as t; t.data_source('{name}')\" prepares it"

#: The file that a prepared dataset has in the folder of each version.
FEATURES = "features.json"

Part = TypeVar("Part")


def load_tfds(name: str) -> Dataset | None:
    """A dataset of that name with its own splits, train and test or validation; None if unknown.

    It is read from where TensorFlow Datasets keep their files (``TFDS_DATA_DIR``, else
    ``~/tensorflow_datasets``; it may be ``gs://BUCKET/FOLDER``), from the files alone: nothing is
    downloaded.

    Raises:
        UserError: if it is not prepared, or is not one of rows of one shape with class labels.
    """
    otherwise = "bundled datasets, files and folders need none"
    tfds = library("tensorflow_datasets", f"--dataset {name}", "tfds", otherwise)
    way_out = f"wanted what TensorFlow Datasets wrote: {PREPARE.format(name=name)}"
    with reading(f"the TensorFlow dataset {name}", way_out):
        builder = _prepared(tfds, name)
        if builder is None:
            return None
        train, test, classes, size = _opened(name, builder)
        if size <= IN_MEMORY_BYTES:
            return make_dataset(name, _read(train), _read(test), classes=classes)
    files = partial(fingerprint_of, builder.data_dir)
    return make_streamed(name, Stream(train, test, files=files), classes)


def fingerprint_of(folder: Any) -> int:
    """Returns the `fingerprint` of a prepared dataset's files, on a disk or in a bucket."""
    paths = importlib.import_module("etils.epath").Path(folder).iterdir()
    found = {path.name: path.stat() for path in paths}
    return fingerprint((name, stat.length, int(stat.mtime)) for name, stat in found.items())


def _prepared(tfds: Any, name: str) -> Any:
    """Returns the reader of a name's files, of the newest version by default; None if unknown."""
    place = os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    try:
        own, _ = tfds.core.naming.parse_builder_name_kwargs(name)
    except ValueError:  # It is not even a name.
        return None
    files = importlib.import_module("tensorflow_datasets.core.read_only_builder")
    try:
        return files.builder_from_files(name, data_dir=place)
    except tfds.core.registered.DatasetNotFoundError:
        if str(own) not in tfds.list_builders(with_community_datasets=False):
            return None
        raise UserError(
            f"{name} needs splits train and test (or validation); there are none in {place}: "
            f"{PREPARE.format(name=name)}."
        ) from None


def _opened(name: str, builder: Any) -> tuple[Source, Source, Sequence[str], int]:
    """The training and the test rows, the classes, and the size of the training rows in bytes."""
    splits = builder.info.splits
    tests = [part for part in ("test", "validation") if part in splits]
    if "train" not in splits or not tests:
        raise UserError(
            f"{name} needs splits train and test (or validation); there are "
            f"{', '.join(splits) or 'none'} in {builder.data_dir}: {PREPARE.format(name=name)}."
        )
    keys, classes, shape = _check(name, builder.info)
    train, *tested = (Source(builder.as_data_source(split=s), *keys) for s in ("train", *tests))
    test = labelled(tested, lambda source: source[[0]][1][0])
    return train, test, classes, len(train) * math.prod(shape) * 4


def _check(name: str, info: Any) -> tuple[tuple[str, str], Sequence[str], tuple[int, ...]]:
    """The names of features and label, those of the classes, and the shape of a row."""
    keys = info.supervised_keys
    if not keys or len(keys) != 2 or not hasattr(info.features[keys[1]], "num_classes"):
        raise UserError(
            f"{name} is not a dataset of rows with one class label each; wanted such a one, as "
            "mnist is: take another, or save rows and labels as FILE.npz."
        )
    feature = info.features[keys[0]]
    if None in feature.shape or np.dtype(feature.np_dtype).kind not in "fiub":
        raise UserError(
            f"{name}: {keys[0]} has shape {feature.shape} and type {np.dtype(feature.np_dtype)}; "
            "wanted numbers, and rows of one shape (resize images when you prepare them)."
        )
    return keys, info.features[keys[1]].names, feature.shape


def labelled(parts: Sequence[Part], label_of_first: Callable[[Part], Any]) -> Part:
    """The first of several parts that has labels: ImageNet's test part has -1 for all of them.

    Args:
        parts: at least one; the first of all where none has labels.
        label_of_first: that of a part's first row.
    """
    return next((part for part in parts if label_of_first(part) >= 0), parts[0])


def _read(source: Source) -> tuple[Rows, Labels]:
    X, y = source[np.arange(len(source))]
    return (X[..., None] if X.ndim == 3 else X), y
