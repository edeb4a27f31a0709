"""Data too large for the device: read in batches, in an order that the seed and epoch decide."""

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from experiments.data.dataset import Dataset, Labels, Rows, check_range, deviations
from experiments.data.doubts import leak_lines
from experiments.errors import UserError

#: The rows that are read at the start: for the mean and deviation, initialization, refreshes.
SAMPLE = 10_000

#: What that sample takes at most, as float32; some 900 squares of 224 pixels.
SAMPLE_BYTES = 1 << 29

#: ``batch on the host -> batch on the devices``.
Put = Callable[[tuple[Rows, Labels]], tuple[Array, Array]]

#: Threads that read and decode.
THREADS = 16

#: The batches that are on the device, or on their way to it, beside the one in use.
AHEAD = 2


class Source:
    """Rows at random: of a `tfds.data_source`, or anything with its ``len`` and ``__getitems__``.

    Args:
        records: dicts of arrays.
        features: the key of a row.
        label: the key of its class.
    """

    def __init__(self, records: Any, features: str, label: str):
        self._records, self._features, self._label = records, features, label

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, rows: Sequence[int] | np.ndarray) -> tuple[Rows, Labels]:
        """The rows and labels of those numbers."""
        records = self._records.__getitems__([int(row) for row in rows])
        X, y = ([record[key] for record in records] for key in (self._features, self._label))
        return np.stack(X), np.asarray(y, np.int32)


class Stream(NamedTuple):
    """Two splits that are read while they are used.

    Attributes:
        train: the training rows, as `Source` gives them or anything else of its kind.
        test: the test rows.
        crops: whether training rows are cropped at random where they are read.
        files: returns the `fingerprint`, as it is then, of the files that the rows are in; 0 if
            they are in none.
    """

    train: Any
    test: Any
    crops: bool = False
    files: Callable[[], int] = int

    def batches(
        self,
        seed: int,
        epoch: int,
        batch_size: int,
        own: Int[np.ndarray, " own"] | None = None,
        put: Put = jax.device_put,
    ) -> Iterator[tuple[Array, Array]]:
        """The batches of an epoch on the devices.

        The order is a function of the seed and the epoch alone: a resumed run goes on with the
        same rows.

        Args:
            seed: of the run.
            epoch: counted from 0.
            batch_size: of all processes together; what is left after whole batches is not read.
            own: the places in a batch that this process reads; None for all.
            put: sends what was read to the devices.
        """
        order = np.random.default_rng([seed, epoch]).permutation(len(self.train))
        steps = len(order) // batch_size
        order = order[: steps * batch_size].reshape(steps, batch_size)
        source = self.train.cropped(seed, epoch) if self.crops else self.train
        return on_device(_read_ahead(source, order if own is None else order[:, own]), put)

    @property
    def can_crop(self) -> bool:
        """True if the rows are pictures that can be cropped while they are read."""
        return hasattr(self.train, "cropped")

    def test_batches(self, size: int, put: Put = jax.device_put) -> Iterator[tuple[Array, Array]]:
        """Yields all test rows in order; the last batch may be smaller."""
        rows = range(len(self.test))
        return on_device(_read_ahead(self.test, [rows[i : i + size] for i in rows[::size]]), put)


def fingerprint(files: Iterable[tuple[str, int, int]]) -> int:
    """Returns a checksum of files too large to be read for one.

    Args:
        files: the name, the size and the time of the last change of each, in seconds.
    """
    return zlib.crc32(repr(sorted(files)).encode(errors="surrogateescape"))


def on_device(batches: Iterator[tuple[Rows, Labels]], put: Put) -> Iterator[tuple[Array, Array]]:
    """Sends batches to the device while the ones before them are in use."""
    sent: list[tuple[Array, Array]] = []
    for batch in batches:
        sent.append(put(batch))
        if len(sent) > AHEAD:
            yield sent.pop(0)
    yield from sent


def make_streamed(
    name: str, stream: Stream, classes: Sequence[str], notes: Sequence[str] = ()
) -> Dataset:
    """A dataset whose arrays are a sample of standardized rows, and which streams the others.

    The mean and the deviation are the sample's, of 10,000 training rows or what fits half a GiB.
    """
    (X_train, y_train), (X_test, y_test) = (
        source[np.linspace(0, len(source) - 1, _sample_size(source)).astype(int)]
        for source in (stream.train, stream.test)
    )
    if X_train.ndim not in (2, 4):
        raise UserError(f"{name}: a row has shape {X_train.shape[1:]}; wanted 1 or 3 axes.")
    check_range(name, y_train, y_test, classes)
    notes = [*notes, *leak_lines(name, X_train, y_train, classes)]
    mean, scale = deviations(X_train)
    X_train, X_test = ((X.astype(np.float32) - mean) / scale for X in (X_train, X_test))
    return Dataset(
        *(X_train, y_train, X_test, y_test, name, len(classes), stream, mean, scale),
        classes=tuple(classes),
        notes=tuple(notes),
    )


def cropped_where_read(dataset: Dataset, augmentation: str) -> tuple[Dataset, str]:
    """With random crops out of whole pictures, if they are streamed: the device has squares."""
    if augmentation != "resized-crop-flip" or not (dataset.stream and dataset.stream.can_crop):
        return dataset, augmentation
    return dataset._replace(stream=dataset.stream._replace(crops=True)), "flip"


def _sample_size(source: Any) -> int:
    """The rows of the sample: as many as wanted, of what is there and fits its memory."""
    row = 4 * source[[0]][0].size
    return min(SAMPLE, len(source), max(1, SAMPLE_BYTES // row))


def _read_ahead(source: Any, batches: Any) -> Iterator[tuple[Rows, Labels]]:
    grain = importlib.import_module("grain")
    options = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * THREADS)
    rows = grain.MapDataset.source(batches).map(lambda batch: source[batch])
    return iter(rows.to_iter_dataset(options))
