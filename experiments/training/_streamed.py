"""An epoch and an evaluation over rows that are read while they are used."""

import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from experiments.data import Augment, Dataset, unchanged
from experiments.training._ahead import Ahead, nothing
from experiments.training._epoch import epoch_keys, steps_per_epoch
from experiments.training._evaluate import CHUNK
from experiments.training._keys import row_keys
from experiments.training._loop import Loop
from experiments.training._loss import Batch
from experiments.training._placement import ONE_DEVICE, Placement
from experiments.training._refresh import Refresh
from experiments.training._state import Metrics, TrainState
from experiments.training._step import Step


class Streamed:
    """An epoch ``(state, X, y) -> (state, mean metrics)``; X and y are a sample, for refreshes.

    Args:
        step: as `make_step` gives it.
        dataset: with a stream.
        batch_size: the rows of one step.
        augment: what changes the rows of a batch, with a key.
        refresh: what is done between steps, if anything is.
        placement: the devices.
    """

    def __init__(
        self,
        step: Step,
        dataset: Dataset,
        batch_size: int,
        augment: Augment = unchanged,
        refresh: Refresh | None = None,
        placement: Placement = ONE_DEVICE,
    ):
        self._dataset, self._batch_size, self._augment = dataset, batch_size, augment
        self._placement = placement
        self._steps = steps_per_epoch(dataset.train_rows, batch_size)
        self._loop = Loop(self._of_stored(step), refresh)

    def compile(self, state: TrainState, X: Array, y: Array) -> None:
        """Compiles everything that a call needs."""
        own = self._placement.own_rows(self._batch_size)
        batch = self._placement.feed(self._dataset.stream.train[own], self._batch_size)
        self._loop.compile(state, X, y, batch)

    def __call__(
        self, state: TrainState, X: Array, y: Array, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, Metrics]:
        """The state after the epoch, and the mean metrics of its steps."""
        batches = self._batches(int(state.seed), int(state.epoch))
        return self._loop(state, X, y, batches, self._steps, meanwhile)

    def batch(self, state: TrainState, index: int) -> Batch:
        """The batch of a step, as the network sees it."""
        batches = self._batches(int(state.seed), int(state.epoch))
        batch = next(itertools.islice(batches, index, None))
        seen = self._of_stored(lambda state, batch: (state, batch))
        return jax.jit(seen)(state, *batch, jnp.int32(index))[1]

    def _batches(self, seed: int, epoch: int) -> Iterator[tuple[Array, Array]]:
        size, place = self._batch_size, self._placement
        own = place.own_rows(size)
        return self._dataset.stream.batches(
            seed, epoch, size, own, lambda batch: place.feed(batch, size)
        )

    def _of_stored(self, step: Step):
        """The step of rows as they are stored: less to send, and standardized where they arrive."""

        def of_stored(state: TrainState, X: Array, y: Array, index: Int[Array, ""]):
            X = standardized(self._dataset, X)
            key = jax.random.fold_in(epoch_keys(state)[1], index)
            keys = row_keys(state.seed, state.epoch, index, len(y))
            return step(state, Batch(self._augment(key, X), y, keys))

        return of_stored


class StreamedEvaluation:
    """An evaluation ``(state, X, y) -> mean metrics`` of all test rows; X and y are not read.

    Args:
        evaluate: ``(state, X, y) -> mean metrics`` of rows on the device.
        dataset: with a stream.
        placement: the devices.
    """

    def __init__(self, evaluate, dataset: Dataset, placement: Placement = ONE_DEVICE):
        self._dataset, self._placement = dataset, placement
        self._evaluate = Ahead(lambda state, X, y: evaluate(state, standardized(dataset, X), y))

    def __call__(self, state: TrainState, X: Array, y: Array) -> Metrics:
        """The means over the test rows."""
        batches = self._dataset.stream.test_batches(CHUNK, self._placement.replicate)
        found = [(len(y), self._evaluate(state, X, y)) for X, y in batches]
        sizes, means = zip(*jax.device_get(found), strict=True)
        return jax.tree.map(lambda *each: np.average(each, weights=sizes), *means)


def standardized(dataset: Dataset, X: Array) -> Array:
    """Rows as they are stored, with the mean and deviation of the dataset's sample taken out."""
    axes = tuple(range(X.ndim - 1))
    mean, scale = (jnp.expand_dims(each, axes) for each in (dataset.mean, dataset.scale))
    return (X.astype(jnp.float32) - mean) / scale
