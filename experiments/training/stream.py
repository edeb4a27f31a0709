"""An epoch and an evaluation over rows that are read while they are used."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.data.dataset import Dataset
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.devices import ONE_DEVICE, Placement
from experiments.training.epoch import EpochPlan, batch_of, steps_per_epoch
from experiments.training.evaluate import CHUNK, Evaluate
from experiments.training.runners import Rows, Stepwise
from experiments.training.state import AnyArray, Batch, Metrics, TrainState


class Streamed(Stepwise):
    """An epoch ``(state, X, y) -> (state, mean metrics)``; X and y are a sample, for refreshes.

    Args:
        plan: what it is made of.
        dataset: with a stream.
    """

    def __init__(self, plan: EpochPlan, dataset: Dataset):
        super().__init__(plan)
        self._dataset = dataset

    def _steps(self, X: AnyArray) -> int:
        return steps_per_epoch(self._dataset.train_rows, self._plan.batch_size)

    def _batches(self, state: TrainState, X: AnyArray, y: AnyArray) -> Iterator[Rows]:
        size, place = self._plan.batch_size, self._plan.placement
        seed, epoch, own = int(state.seed), int(state.epoch), place.own_rows(size)
        batches: Iterator[Rows] = self._dataset.stream.batches(
            seed, epoch, size, own, lambda batch: place.feed(batch, size)
        )
        return batches

    def _example(self, state: TrainState, X: AnyArray, y: AnyArray) -> Rows:
        size, place = self._plan.batch_size, self._plan.placement
        rows: Rows = place.feed(self._dataset.stream.train[place.own_rows(size)], size)
        return rows

    def _seen(self, state: TrainState, *rows: Any) -> Batch:
        """Rows come as they are stored: less to send, and standardized where they arrive."""
        X, y, index = rows
        return batch_of(state, standardized(self._dataset, X), y, index, self._plan.augment)


class StreamedEvaluation:
    """An evaluation ``(state, X, y) -> mean metrics`` of all test rows; X and y are not read.

    Args:
        evaluate: ``(state, X, y) -> mean metrics`` of rows on the device.
        dataset: with a stream.
        placement: the devices.
    """

    def __init__(self, evaluate: Evaluate, dataset: Dataset, placement: Placement = ONE_DEVICE):
        self._dataset, self._placement = dataset, placement
        self._evaluate = AheadOfTime(
            lambda state, X, y: evaluate(state, standardized(dataset, X), y)
        )

    def __call__(self, state: TrainState, X: AnyArray, y: AnyArray) -> Metrics:
        """The means over the test rows."""
        batches = self._dataset.stream.test_batches(CHUNK, self._placement.replicate)
        found = [(len(y), self._evaluate(state, X, y)) for X, y in batches]
        sizes, means = zip(*jax.device_get(found), strict=True)
        return jax.tree.map(lambda *each: np.average(each, weights=sizes), *means)


def standardized(dataset: Dataset, X: Array) -> Array:
    """Rows as they are stored, with the mean and deviation of the dataset's sample taken out."""
    axes = tuple(range(X.ndim - 1))
    of_sample: tuple[Any, Any] = dataset.mean, dataset.scale
    mean, scale = (jnp.expand_dims(each, axes) for each in of_sample)
    return (X.astype(jnp.float32) - mean) / scale
