"""An epoch and an evaluation over rows that are read while the device computes."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.data.dataset import Dataset
from experiments.methods.statistics import CHUNK
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.devices import ONE_DEVICE, Placement
from experiments.training.epoch import EpochPlan, Rows, Stepwise, batch_of, steps_per_epoch
from experiments.training.evaluate import Evaluate
from experiments.training.state import AnyArray, Batch, Metrics, TrainState


class Streamed(Stepwise):
    """A runner of an epoch over a stream; X and y are a sample, for refreshes.

    Args:
        plan: the plan of the epoch.
        dataset: a dataset with a stream.
    """

    def __init__(self, plan: EpochPlan, dataset: Dataset):
        super().__init__(plan)
        self._dataset = dataset

    def _steps(self, X: AnyArray) -> int:
        return steps_per_epoch(self._dataset.train_rows, self._plan.batch_size)

    def _batches(self, state: TrainState, X: AnyArray, y: AnyArray) -> Iterator[Rows]:
        size, place = self._plan.batch_size, self._plan.placement
        seed, epoch, local = int(state.seed), int(state.epoch), place.own_rows(size)
        batches: Iterator[Rows] = self._dataset.stream.batches(
            seed, epoch, size, local, lambda batch: place.feed(batch, size)
        )
        return batches

    def _example(self, state: TrainState, X: AnyArray, y: AnyArray) -> Rows:
        size, place = self._plan.batch_size, self._plan.placement
        rows: Rows = place.feed(self._dataset.stream.train[place.own_rows(size)], size)
        return rows

    def _network_batch(self, state: TrainState, *rows: Any) -> Batch:
        """Standardizes stored rows on the device, because stored rows are smaller to send."""
        X, y, index = rows
        return batch_of(state, standardized(self._dataset, X), y, index, self._plan.augment)


class StreamedEvaluation:
    """An evaluation ``(state, X, y) -> mean metrics`` of all test rows; X and y are ignored.

    Args:
        evaluate: ``(state, X, y) -> mean metrics`` of rows on the device.
        dataset: a dataset with a stream.
        placement: the devices.
    """

    def __init__(self, evaluate: Evaluate, dataset: Dataset, placement: Placement = ONE_DEVICE):
        self._dataset, self._placement = dataset, placement
        self._evaluate = AheadOfTime(
            lambda state, X, y: evaluate(state, standardized(dataset, X), y)
        )

    def __call__(self, state: TrainState, X: AnyArray, y: AnyArray) -> Metrics:
        """Returns the means over the test rows."""
        batches = self._dataset.stream.test_batches(CHUNK, self._placement.replicate)
        results = [(len(y), self._evaluate(state, X, y)) for X, y in batches]
        sizes, means = zip(*jax.device_get(results), strict=True)
        return jax.tree.map(lambda *each: np.average(each, weights=sizes), *means)


def standardized(dataset: Dataset, X: Array) -> Array:
    """Standardizes stored rows by the mean and the deviation of the dataset's sample."""
    axes = tuple(range(X.ndim - 1))
    moments: tuple[Any, Any] = dataset.mean, dataset.scale
    mean, scale = (jnp.expand_dims(each, axes) for each in moments)
    return (X.astype(jnp.float32) - mean) / scale
