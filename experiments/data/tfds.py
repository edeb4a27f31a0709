"""TensorFlow Datasets without TensorFlow: files in the array_record format, read at random."""

import importlib
import math
import re
from types import ModuleType
from typing import Any

import numpy as np

from experiments.data.dataset import Dataset, Labels, Rows, make_dataset
from experiments.data.prepared import data_dir, find_prepared, labelled, refuse_foreign_classes
from experiments.data.stream import Source, Stream, make_streamed
from experiments.errors import UserError
from experiments.reading import reading

#: As float32; datasets up to this size are read once and stay on the device.
IN_MEMORY_BYTES = 2 << 30

PREPARE = "python -c \"import tensorflow_datasets as t; t.data_source('{name}')\" prepares it"


def load_tfds(name: str) -> Dataset | None:
    """A dataset of that name with its own splits, train and test or validation; None if unknown.

    It is read from where TensorFlow Datasets keep their files (``TFDS_DATA_DIR``, else
    ``~/tensorflow_datasets``), from the files alone: nothing is downloaded, and no code is looked
    for but that of TensorFlow Datasets' own features.

    Raises:
        UserError: if it is not prepared, or is not one of rows of one shape with class labels.
    """
    tfds = _library("tensorflow_datasets", name)
    folder = find_prepared(tfds.core.naming.camelcase_to_snakecase(name))
    if folder is None:
        if re.split("[/:]", name)[0] not in tfds.list_builders(with_community_datasets=False):
            return None
        raise UserError(
            f"{name} needs splits train and test (or validation); there are none in {data_dir()}: "
            f"{PREPARE.format(name=name)}."
        )
    refuse_foreign_classes(folder)
    way_out = f"wanted what TensorFlow Datasets wrote: {PREPARE.format(name=name)}"
    with reading(f"the TensorFlow dataset in {folder}", way_out):
        sources, classes, size = _opened(name, tfds.builder_from_directory(folder))
        parts = [] if size > IN_MEMORY_BYTES else [*map(_read, sources)]
    if parts:
        train, test = parts
        return make_dataset(name, train, test, classes)
    return make_streamed(name, Stream(sources[0], sources[1]), classes)


def _opened(name: str, builder: Any) -> tuple[list[Source], int, int]:
    """The training and the test rows, the number of classes, and the size of the first in bytes."""
    splits = builder.info.splits
    tests = [part for part in ("test", "validation") if part in splits]
    if "train" not in splits or not tests:
        raise UserError(
            f"{name} needs splits train and test (or validation); there are "
            f"{', '.join(splits) or 'none'} in {builder.data_dir}: {PREPARE.format(name=name)}."
        )
    keys, classes, shape = _check(name, builder.info)
    train, *tested = (_source(builder, name, part, keys) for part in ("train", *tests))
    sources = [train, labelled(tested, lambda source: source[[0]][1][0])]
    return sources, classes, len(train) * math.prod(shape) * 4


def _library(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UserError(
            f"there is no bundled dataset, file or folder {name!r}; to look for it among the "
            "TensorFlow Datasets, pip install 'jaxnorm[tfds]'."
        ) from None


def _check(name: str, info: Any) -> tuple[tuple[str, str], int, tuple[int, ...]]:
    """The names of features and label, the number of classes, and the shape of a row."""
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
    return keys, info.features[keys[1]].num_classes, feature.shape


def _source(builder: Any, name: str, part: str, keys: tuple[str, str]) -> Source:
    try:
        return Source(builder.as_data_source(split=part), *keys)
    except NotImplementedError as error:  # what TensorFlow Datasets raise for another format
        raise UserError(
            f"cannot read {name} at random, for its files are not of the format array_record: "
            f"{PREPARE.format(name=name)}, in an empty TFDS_DATA_DIR."
        ) from error


def _read(source: Source) -> tuple[Rows, Labels]:
    X, y = source[np.arange(len(source))]
    return (X[..., None] if X.ndim == 3 else X), y
