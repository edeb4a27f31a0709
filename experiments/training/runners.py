"""The ways to run an epoch: as one compiled scan, or as calls of one compiled step."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from flax import nnx

from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.epoch import (
    EpochPlan,
    Refresh,
    batch_of,
    batch_order,
    make_epoch,
    make_indexed_step,
)
from experiments.training.state import AnyArray, Batch, StepMetrics, TrainState

#: How many steps the device is given before the host turns to something else: enough to be busy for
#: a while, and fewer than JAX lets be under way.
STEPS_AHEAD = 8


def nothing() -> None:
    """What the host does while the device computes, if there is nothing to do."""


@runtime_checkable
class Runner(Protocol):
    """An epoch ``(state, X, y) -> (state, mean metrics of its steps)``; it consumes the state."""

    #: In a few words.
    title: str

    def compile(self, state: TrainState, X: AnyArray, y: AnyArray) -> Any:
        """Compiles everything that a call needs."""

    def __call__(
        self, state: TrainState, X: AnyArray, y: AnyArray, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, StepMetrics]:
        """The state after the epoch; ``meanwhile`` is called once, when the device is at work."""

    def batch(self, state: TrainState, X: AnyArray, y: AnyArray, index: int) -> Batch:
        """The batch of a step of the epoch that the state begins, as the network sees it."""


class Scanned(AheadOfTime):
    """An epoch as one compiled scan, which the host does not wait for."""

    title = "one compiled scan"

    def __init__(self, plan: EpochPlan):
        # The old state's memory becomes the new one's.
        super().__init__(make_epoch(plan), donate_argnums=0)
        self._plan = plan

    def __call__(
        self, state: TrainState, X: AnyArray, y: AnyArray, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, StepMetrics]:
        """The state after the epoch, and the mean metrics of its steps."""
        result: tuple[TrainState, StepMetrics] = super().__call__(state, X, y)
        meanwhile()
        return result

    def batch(self, state: TrainState, X: AnyArray, y: AnyArray, index: int) -> Batch:
        """The batch of a step, as the network sees it."""
        return _batch_in_memory(self._plan, state, X, y, index)


class Loop:
    """The steps of an epoch as calls; step and refreshes are compiled each on its own.

    Args:
        step: ``(state, *batch, index) -> (state, metrics)``; it consumes the state.
        refreshes: what is done between steps.
    """

    def __init__(self, step: Callable[..., Any], refreshes: Sequence[Refresh] = ()):
        self.step = AheadOfTime(step, donate_argnums=0)
        self._refreshes = [
            (refresh, AheadOfTime(refresh.run, donate_argnums=0)) for refresh in refreshes
        ]

    def compile(
        self, state: TrainState, X: AnyArray, y: AnyArray, batch: tuple[AnyArray, ...]
    ) -> None:
        """Compiles everything that a call needs."""
        self.step.compile(state, *batch, np.int32(0))
        for _, run in self._refreshes:
            run.compile(state, X, y, np.int32(0))

    def __call__(
        self,
        state: TrainState,
        X: AnyArray,
        y: AnyArray,
        batches: Iterable[tuple[AnyArray, ...]],
        steps: int,
        meanwhile: Callable[[], None] = nothing,
    ) -> tuple[TrainState, StepMetrics]:
        """The state after the epoch, and the mean metrics of its steps, which are fetched once.

        Args:
            state: at the start of the epoch.
            X: the rows that a refresh sees.
            y: their labels.
            batches: what the step takes beside the state and the index.
            steps: their number.
            meanwhile: called once, when the device has the first steps to do.
        """
        collected: list[StepMetrics] = []
        for _, run in self._refreshes if int(state.epoch) == 0 else []:
            state = run(state, X, y, np.int32(-1))
        for index, batch in enumerate(batches):
            state, metrics = self.step(state, *batch, np.int32(index))
            collected.append(metrics)
            if index + 1 == min(STEPS_AHEAD, steps):
                meanwhile()
            for refresh, run in self._refreshes:
                if refresh.is_due(index, steps):
                    state = run(state, X, y, np.int32(index))
        means = jax.tree.map(lambda *each: np.mean(each), *jax.device_get(collected))
        return state._replace(epoch=state.epoch + 1), means


class Stepwise:
    """The same function as `Scanned`, without the scan.

    XLA on the CPU computes the gradients of convolutions inside a loop 10 to 50 times slower than
    outside (https://github.com/jax-ml/jax/issues/12868), which is far more than a call costs.
    """

    title = "a call per step"

    def __init__(self, plan: EpochPlan):
        self._order = AheadOfTime(lambda state, X: batch_order(state, len(X), plan.batch_size))
        self._loop = Loop(make_indexed_step(plan.step, plan.augment), plan.refreshes)
        self._plan = plan

    def compile(self, state: TrainState, X: AnyArray, y: AnyArray) -> None:
        """Compiles everything that a call needs."""
        self._loop.compile(state, X, y, (X, y, self._order(state, X)))

    def __call__(
        self, state: TrainState, X: AnyArray, y: AnyArray, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, StepMetrics]:
        """The state after the epoch, and the mean metrics of its steps."""
        order = self._order(state, X)
        return self._loop(state, X, y, [(X, y, order)] * len(order), len(order), meanwhile)

    def batch(self, state: TrainState, X: AnyArray, y: AnyArray, index: int) -> Batch:
        """The batch of a step, as the network sees it."""
        return _batch_in_memory(self._plan, state, X, y, index)

    @property
    def compilations(self) -> int:
        """How often the step was compiled."""
        return self._loop.step.compilations


def loops_are_slow(model: nnx.Module) -> bool:
    """Whether an epoch of this network should not be one compiled loop on this machine."""
    has_convolution = any(isinstance(module, nnx.Conv) for _, module in nnx.iter_modules(model))
    return has_convolution and jax.default_backend() == "cpu"


def _batch_in_memory(
    plan: EpochPlan, state: TrainState, X: AnyArray, y: AnyArray, index: int
) -> Batch:
    rows = batch_order(state, len(X), plan.batch_size)[index]
    return seen_by_network(plan, state, X[rows], y[rows], index)


def seen_by_network(
    plan: EpochPlan, state: TrainState, X: AnyArray, y: AnyArray, index: int
) -> Batch:
    """The batch of some rows at the step of that index."""
    return jax.jit(partial(batch_of, augment=plan.augment))(state, X, y, np.int32(index))
