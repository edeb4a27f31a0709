"""Pictures of any size, read and cropped while they are used: a folder, or TensorFlow records.

Of all pictures only the names are in memory, and of their pixels the batches that are read ahead.
"""

import importlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from PIL import Image

from experiments.data.crops import at_random, middle
from experiments.data.dataset import Dataset, Labels, Rows, check_classes
from experiments.data.images import TESTS, Content, Images, find_images, read_picture
from experiments.data.reading import reading
from experiments.data.stream import Stream, fingerprint, make_streamed
from experiments.data.tfds import FEATURES, fingerprint_of, labelled
from experiments.errors import UserError


class Files:
    """Records of pictures in files.

    Args:
        files: their paths.
        labels: their class numbers.
    """

    def __init__(self, files: Sequence[Content], labels: Int[np.ndarray, " rows"]):
        self._paths, self._labels = files, labels.tolist()

    def __len__(self) -> int:
        return len(self._paths)

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        found = [(self._paths[row], self._labels[row]) for row in rows]
        return [{"image": read_picture(path, path), "label": label} for path, label in found]


class Pictures:
    """Rows at random, as a stream's source: squares of one size, of records of any.

    Args:
        records: the pictures, with ``__len__`` and ``__getitems__``, which gives dicts of ``label``
            and ``image``: an array, a picture or a file's bytes.
        side: of the squares in pixels.
        drawn: (seed, epoch) of random crops; None for the middle.
    """

    def __init__(self, records: Any, side: int, drawn: tuple[int, int] | None = None):
        self._records, self._side, self._drawn = records, side, drawn

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, rows: Sequence[int] | np.ndarray) -> tuple[Rows, Labels]:
        """The squares (rows, side, side, 3) of bytes and the labels of those numbers."""
        # One after the other: a thread that reads ahead holds one whole picture, not a batch.
        found = [self._row(int(row)) for row in rows]
        squares, labels = zip(*found, strict=True)
        return np.stack(squares), np.asarray(labels, np.int32)

    def cropped(self, seed: int, epoch: int) -> "Pictures":
        """Returns the pictures with a random crop of each, drawn anew in each epoch."""
        return Pictures(self._records, self._side, (seed, epoch))

    def _row(self, row: int) -> tuple[np.ndarray, int]:
        (record,) = self._records.__getitems__([row])
        return self._square(row, record["image"]), record["label"]

    def _square(self, row: int, picture: Any) -> np.ndarray:
        if isinstance(picture, bytes):
            picture = read_picture(f"of row {row}", picture)
        if not isinstance(picture, Image.Image):
            picture = Image.fromarray(np.squeeze(picture, 2) if picture.shape[2] == 1 else picture)
        if self._drawn is None:
            return middle(picture, self._side)
        return at_random(picture, self._side, np.random.default_rng([*self._drawn, row]))


def load_pictures(path: Path, side: int) -> Dataset:
    """A dataset of pictures of any size, which are read, decoded and cropped while they are used.

    Args:
        path: a folder ``train|test/CLASS/*`` (or ``val``), or that of a TensorFlow dataset's
            version, in the format array_record.
        side: of the squares in pixels.

    Raises:
        UserError: if there are no such pictures.
    """
    prepared = sorted(path.glob(f"**/{FEATURES}")) if not (path / "train").is_dir() else []
    if prepared:
        train, test, classes = _records(prepared[-1].parent)
        files = partial(fingerprint_of, prepared[-1].parent)
        stream = Stream(Pictures(train, side), Pictures(test, side), files=files)
        return make_streamed(path.name, stream, classes)
    images = find_images(path)
    if images.test is None:
        raise UserError(
            f"{path} has folders of classes; wanted pictures train/CLASS/* and test/CLASS/* (or "
            "val), or a prepared TensorFlow dataset."
        )
    y_train, y_test = images.labels(images.train), images.labels(images.test)
    check_classes(path.name, y_train, y_test, images.classes)
    train = Pictures(Files(list(images.train.values()), y_train), side)
    test = Pictures(Files(list(images.test.values()), y_test), side)
    stream = Stream(train, test, files=partial(_fingerprint, images))
    return make_streamed(path.name, stream, images.classes, images.notes)


def _fingerprint(images: Images) -> int:
    places = {**images.train, **(images.test or {})}
    files = {str(place): file for place, file in places.items() if isinstance(file, Path)}
    found = {name: file.stat() for name, file in files.items() if file.exists()}
    return fingerprint((name, stat.st_size, int(stat.st_mtime)) for name, stat in found.items())


def _records(folder: Path) -> tuple[Any, Any, Sequence[str]]:
    with reading(f"the TensorFlow dataset in {folder}", "wanted what TensorFlow Datasets wrote"):
        tfds = importlib.import_module("tensorflow_datasets")
        builder = tfds.builder_from_directory(folder)
        found = [part for part in ("train", *TESTS) if part in builder.info.splits]
        # Their own decoder takes pictures of any size.
        raw = {"image": tfds.decode.SkipDecoding()}
        train, *tests = (builder.as_data_source(split=part, decoders=raw) for part in found)
        held_out = labelled(tests, lambda records: records.__getitems__([0])[0]["label"])
        return train, held_out, builder.info.features["label"].names
