"""The ways to run an epoch: as one compiled scan, or as calls of one compiled step."""

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

#: How many steps the device is given before the host turns to something else: enough to be busy for
#: a while, and fewer than JAX lets be under way.
STEPS_AHEAD = 8

#: What a step is given beside the state and its index.
Rows = tuple[AnyArray, ...]


def nothing() -> None:
    """What the host does while the device computes, if there is nothing to do."""


class Scanned(AheadOfTime):
    """An epoch as one compiled scan, which the host does not wait for."""

    def __init__(self, plan: EpochPlan):
        # The old state's memory becomes the new one's.
        super().__init__(make_epoch(plan), donate_argnums=0)
        self._plan = plan

    def __call__(
        self, state: TrainState, X: AnyArray, y: AnyArray, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, StepMetrics]:
        """The state after the epoch, and the mean metrics of its steps.

        The state is consumed; ``meanwhile`` is called once, when the device is at work.
        """
        result: tuple[TrainState, StepMetrics] = super().__call__(state, X, y)
        meanwhile()
        return result

    def batch(self, state: TrainState, X: AnyArray, y: AnyArray, index: int) -> Batch:
        """The batch of a step of the epoch that the state begins, as the network sees it."""
        return Stepwise(self._plan).batch(state, X, y, index)


class Stepwise:
    """The same function as `Scanned`, as calls of one compiled step.

    XLA on the CPU computes the gradients of convolutions inside a loop 10 to 50 times slower than
    outside (https://github.com/jax-ml/jax/issues/12868), which is far more than a call costs. The
    step and the refreshes are compiled each on its own.
    """

    def __init__(self, plan: EpochPlan):
        self._plan = plan
        self._order = AheadOfTime(lambda state, X: batch_order(state, len(X), plan.batch_size))

        def indexed_step(state: TrainState, *rows: AnyArray) -> tuple[TrainState, StepMetrics]:
            return plan.step(state, self._seen(state, *rows))

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
        """The state after the epoch, and the mean metrics of its steps, which are fetched once."""
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
        """The batch of a step, as the network sees it."""
        rows = next(itertools.islice(self._batches(state, X, y), index, None))
        return jax.jit(self._seen)(state, *rows, np.int32(index))

    @property
    def compilations(self) -> int:
        """How often the step was compiled."""
        return self._step.compilations

    def _steps(self, X: AnyArray) -> int:
        return steps_per_epoch(len(X), self._plan.batch_size)

    def _batches(self, state: TrainState, X: AnyArray, y: AnyArray) -> Iterator[Rows]:
        """What each step is given beside the state and its index."""
        return itertools.repeat((X, y, self._order(state, X)), self._steps(X))

    def _example(self, state: TrainState, X: AnyArray, y: AnyArray) -> Rows:
        """One of these, to compile for."""
        return next(self._batches(state, X, y))

    def _seen(self, state: TrainState, *rows: Any) -> Batch:
        """Of what a step is given, with its index, the batch as the network sees it."""
        X, y, order, index = rows
        own = order[index]
        return batch_of(state, X[own], y[own], index, self._plan.augment)


#: What runs an epoch.
Runner = Scanned | Stepwise


def loops_are_slow(model: nnx.Module) -> bool:
    """Whether an epoch of this network should not be one compiled loop on this machine."""
    has_convolution = any(isinstance(module, nnx.Conv) for _, module in nnx.iter_modules(model))
    return has_convolution and jax.default_backend() == "cpu"
