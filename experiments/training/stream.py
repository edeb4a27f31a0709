"""An epoch and an evaluation over rows that are read while they are used."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from experiments.data.dataset import Dataset
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.devices import ONE_DEVICE, Placement
from experiments.training.epoch import EpochPlan, batch_of, steps_per_epoch
from experiments.training.evaluate import CHUNK, Evaluate
from experiments.training.runners import Loop, nothing
from experiments.training.state import AnyArray, Batch, Metrics, StepMetrics, TrainState


class Streamed:
    """An epoch ``(state, X, y) -> (state, mean metrics)``; X and y are a sample, for refreshes.

    Args:
        plan: what it is made of.
        dataset: with a stream.
    """

    title = "a call per step, over a stream"

    def __init__(self, plan: EpochPlan, dataset: Dataset):
        self._plan, self._dataset = plan, dataset
        self._steps = steps_per_epoch(dataset.train_rows, plan.batch_size)
        self._loop = Loop(
            lambda state, X, y, index: plan.step(state, self._seen(state, X, y, index)),
            plan.refreshes,
        )

    def compile(self, state: TrainState, X: AnyArray, y: AnyArray) -> None:
        """Compiles everything that a call needs."""
        size, place = self._plan.batch_size, self._plan.placement
        batch = place.feed(self._dataset.stream.train[place.own_rows(size)], size)
        self._loop.compile(state, X, y, batch)

    def __call__(
        self, state: TrainState, X: AnyArray, y: AnyArray, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, StepMetrics]:
        """The state after the epoch, and the mean metrics of its steps."""
        batches = self._batches(int(state.seed), int(state.epoch))
        return self._loop(state, X, y, batches, self._steps, meanwhile)

    def batch(self, state: TrainState, X: AnyArray, y: AnyArray, index: int) -> Batch:
        """The batch of a step, as the network sees it; X and y are not read."""
        batches = self._batches(int(state.seed), int(state.epoch))
        batch = next(itertools.islice(batches, index, None))
        return jax.jit(self._seen)(state, *batch, np.int32(index))

    def _batches(self, seed: int, epoch: int) -> Iterator[tuple[Array, Array]]:
        size, place = self._plan.batch_size, self._plan.placement
        own = place.own_rows(size)
        return self._dataset.stream.batches(
            seed, epoch, size, own, lambda batch: place.feed(batch, size)
        )

    def _seen(self, state: TrainState, X: Array, y: Array, index: Int[Array, ""]) -> Batch:
        """Rows come as they are stored: less to send, and standardized where they arrive."""
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
