"""Runners of an epoch: one compiled scan, or calls of one compiled step."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.epoch import (
    EpochPlan,
    batch_of,
    batch_order,
    make_epoch,
    steps_per_epoch,
)
from experiments.training.state import AnyArray, Batch, StepMetrics, TrainState

#: The number of steps dispatched before the host turns to other work: enough to keep the device
#: busy, and fewer than JAX keeps in flight.
STEPS_AHEAD = 8

#: The arguments of a step between its state and its index.
Rows = tuple[AnyArray, ...]


def nothing() -> None:
    """Does nothing: the host's work during an epoch by default."""


class Scanned(AheadOfTime):
    """A runner of an epoch as one compiled scan."""

    def __init__(self, plan: EpochPlan):

        super().__init__(make_epoch(plan), donate_argnums=0)
        self._plan = plan

    def __call__(
        self, state: TrainState, X: AnyArray, y: AnyArray, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, StepMetrics]:
        """Returns the state after the epoch, and the mean metrics of its steps.

        The state is consumed; ``meanwhile`` is called once, while the device computes.

        """
        result: tuple[TrainState, StepMetrics] = super().__call__(state, X, y)
        meanwhile()
        return result

    def batch(self, state: TrainState, X: AnyArray, y: AnyArray, index: int) -> Batch:
        """Returns a step's batch, in the epoch that the state begins, as the network sees it."""
        return Stepwise(self._plan).batch(state, X, y, index)


class Stepwise:
    """A runner of an epoch as calls of one compiled step.

    XLA computes the gradients of convolutions on the CPU 10 to 50 times slower inside a loop than
    outside (https://github.com/jax-ml/jax/issues/12868), far more than a call costs. The step and
    each refresh are compiled separately.
    """

    def __init__(self, plan: EpochPlan):
        self._plan = plan
        self._order = AheadOfTime(lambda state, X: batch_order(state, len(X), plan.batch_size))

        def indexed_step(state: TrainState, *rows: AnyArray) -> tuple[TrainState, StepMetrics]:
            return plan.step(state, self._network_batch(state, *rows))

        self._step = AheadOfTime(indexed_step, donate_argnums=0)
        self._refreshes = [
            (refresh, AheadOfTime(refresh.run, donate_argnums=0)) for refresh in plan.refreshes
        ]

    def compile(self, state: TrainState, X: AnyArray, y: AnyArray) -> None:
        """Compiles everything that a call needs."""
        self._step.compile(state, *self._example(state, X, y), np.int32(0))
        for _, run in self._refreshes:
            run.compile(state, X, y, np.int32(0))

    def __call__(
        self, state: TrainState, X: AnyArray, y: AnyArray, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, StepMetrics]:
        """Returns the state after the epoch, and the mean metrics of its steps, fetched once."""
        collected: list[StepMetrics] = []
        batches, steps = self._batches(state, X, y), self._steps(X)
        for _, run in self._refreshes if int(state.epoch) == 0 else []:
            state = run(state, X, y, np.int32(-1))
        for index, rows in enumerate(batches):
            state, metrics = self._step(state, *rows, np.int32(index))
            collected.append(metrics)
            if index + 1 == min(STEPS_AHEAD, steps):
                meanwhile()
            for refresh, run in self._refreshes:
                if refresh.is_due(index, steps):
                    state = run(state, X, y, np.int32(index))
        means = jax.tree.map(lambda *each: np.mean(each), *jax.device_get(collected))
        return state._replace(epoch=state.epoch + 1), means

    def batch(self, state: TrainState, X: AnyArray, y: AnyArray, index: int) -> Batch:
        """Returns the batch of a step, as the network sees it."""
        rows = next(itertools.islice(self._batches(state, X, y), index, None))
        return jax.jit(self._network_batch)(state, *rows, np.int32(index))

    @property
    def compilations(self) -> int:
        """The number of compilations of the step."""
        return self._step.compilations

    def _steps(self, X: AnyArray) -> int:
        return steps_per_epoch(len(X), self._plan.batch_size)

    def _batches(self, state: TrainState, X: AnyArray, y: AnyArray) -> Iterator[Rows]:
        """Yields the arguments of each step between its state and its index."""
        return itertools.repeat((X, y, self._order(state, X)), self._steps(X))

    def _example(self, state: TrainState, X: AnyArray, y: AnyArray) -> Rows:
        """Returns the arguments of one step, to compile for."""
        return next(self._batches(state, X, y))

    def _network_batch(self, state: TrainState, *rows: Any) -> Batch:
        """Returns the batch of a step as the network sees it, from the step's arguments."""
        X, y, order, index = rows
        taken = order[index]
        return batch_of(state, X[taken], y[taken], index, self._plan.augment)


#: A runner of epochs.
Runner = Scanned | Stepwise


def loops_are_slow(model: nnx.Module) -> bool:
    """Returns True if this machine runs the network faster step by step than in a compiled loop."""
    has_convolution = any(isinstance(module, nnx.Conv) for _, module in nnx.iter_modules(model))
    return has_convolution and jax.default_backend() == "cpu"
