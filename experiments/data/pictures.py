"""Pictures of any size, read and cropped while they are used: a folder, or TensorFlow records.

Of all pictures only the names are in memory, and of their pixels the batches that are read ahead.
"""

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from experiments.augmentation.crops import at_random, middle
from experiments.data.dataset import Dataset, Labels, Rows, check_trained
from experiments.data.images import picture_files, read_picture
from experiments.data.stream import Stream, make_streamed
from experiments.data.tfds import FEATURES, labelled
from experiments.errors import UserError
from experiments.reading import reading

#: The folders of test pictures, of which the first that is there is read.
TESTS = ("test", "val", "validation")


class Files:
    """Records of pictures in files.

    Args:
        paths: ``CLASS/NAME``.
        classes: the names, whose places are their numbers.
    """

    def __init__(self, paths: Sequence[Path], classes: Sequence[str]):
        self._paths = paths
        self._labels = [classes.index(path.parent.name) for path in paths]

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
        """The same with a random crop of each picture, of its own in each epoch."""
        return Pictures(self._records, self._side, (seed, epoch))

    def _row(self, row: int) -> tuple[np.ndarray, int]:
        (record,) = self._records.__getitems__([row])
        return self._square(row, record["image"]), record["label"]

    def _square(self, row: int, picture: Any) -> np.ndarray:
        if isinstance(picture, bytes):
            picture = read_picture(f"of row {row}", io.BytesIO(picture))
        if not isinstance(picture, Image.Image):
            picture = Image.fromarray(np.squeeze(picture, 2) if picture.shape[2] == 1 else picture)
        if self._drawn is None:
            return middle(picture, self._side)
        return at_random(picture, self._side, np.random.default_rng([*self._drawn, row]))


def load_pictures(path: Path, side: int) -> Dataset:
    """A dataset of pictures of any size, which are read, decoded and cropped while they are used.

    Args:
        path: a folder ``train|test/CLASS/*.{jpg,png}`` (or ``val``), or that of a TensorFlow
            dataset's version, in the format array_record.
        side: of the squares in pixels.

    Raises:
        UserError: if there are no such pictures.
    """
    prepared = sorted(path.glob(f"**/{FEATURES}")) if not (path / "train").is_dir() else []
    train, test, classes = _records(prepared[-1].parent) if prepared else _files(path)
    stream = Stream(Pictures(train, side), Pictures(test, side))
    return make_streamed(path.name, stream, classes)


def _files(path: Path) -> tuple[Files, Files, int]:
    held_out = next((path / name for name in TESTS if (path / name).is_dir()), path / TESTS[0])
    train, test = picture_files(path / "train"), picture_files(held_out)
    if not train or not test:
        raise UserError(
            f"{path} needs pictures train/CLASS/*.jpg and test/CLASS/*.jpg (or val), or a prepared "
            "TensorFlow dataset; there are none, or of one part alone."
        )
    classes = sorted({file.parent.name for file in train})
    check_trained(path, "pictures", classes, (file.parent.name for file in test))
    return Files(train, classes), Files(test, classes), len(classes)


def _records(folder: Path) -> tuple[Any, Any, int]:
    with reading(f"the TensorFlow dataset in {folder}", "wanted what TensorFlow Datasets wrote"):
        tfds = importlib.import_module("tensorflow_datasets")
        builder = tfds.builder_from_directory(folder)
        found = [part for part in ("train", *TESTS) if part in builder.info.splits]
        # Their own decoder takes pictures of any size.
        raw = {"image": tfds.decode.SkipDecoding()}
        train, *tests = (builder.as_data_source(split=part, decoders=raw) for part in found)
        held_out = labelled(tests, lambda records: records.__getitems__([0])[0]["label"])
        return train, held_out, builder.info.features["label"].num_classes
