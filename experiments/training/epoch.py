"""An epoch: its batches, its steps, and the refreshes between them.

An epoch runs as one compiled scan (`Scanned`), or as calls of one compiled step (`Stepwise`).
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Int, Num, PyTree

from experiments.augmentation.table import Augment, unchanged
from experiments.errors import UserError
from experiments.methods.method import Method, Refreshed
from experiments.methods.part import Context, Sample
from experiments.models.libraries import Wrapped
from experiments.training.ahead_of_time import AheadOfTime
from experiments.training.devices import ONE_DEVICE, Placement
from experiments.training.state import (
    AnyArray,
    Batch,
    StepMetrics,
    TrainState,
    epoch_keys,
    probe_key,
    row_keys,
)
from experiments.training.step import Step

X = Num[Array, "rows *shape"]
Y = Int[Array, "rows *positions"]
Order = Int[Array, "steps batch"]

#: The number of steps dispatched before the host turns to other work: enough to keep the device
#: busy, and fewer than JAX keeps in flight.
STEPS_AHEAD = 8

#: The arguments of a step between its state and its index.
Rows = tuple[AnyArray, ...]


def steps_per_epoch(rows: int, batch_size: int) -> int:
    """Returns the number of whole batches in ``rows``."""
    if not 1 <= batch_size <= rows:
        raise UserError(
            f"the batch size is {batch_size} and there are {rows} training rows; take a "
            f"--batch-size from 1 to {rows}."
        )
    return rows // batch_size


def batch_order(state: TrainState, rows: int, batch_size: int) -> Order:
    """Draws an order of the rows, in batches; the remainder is left out of this epoch."""
    steps = steps_per_epoch(rows, batch_size)
    order = jax.random.permutation(epoch_keys(state)[0], rows)
    return order[: steps * batch_size].reshape(steps, batch_size)


def batch_of(
    state: TrainState, X: Array, y: Array, index: Int[Array, ""], augment: Augment = unchanged
) -> Batch:
    """Returns the batch of some rows as the network sees it at the step of that index."""
    key = jax.random.fold_in(epoch_keys(state)[1], index)
    return Batch(augment(key, X), y, row_keys(state, index, len(y)))


def batch_at(
    state: TrainState,
    X: Array,
    y: Array,
    order: Order,
    index: Int[Array, ""],
    augment: Augment = unchanged,
) -> Batch:
    """Returns the batch of the step of that index, taken out of all rows."""
    rows = order[index]
    return batch_of(state, X[rows], y[rows], index, augment)


class Refresh(NamedTuple):
    """A method's computation between steps, once per period.

    Attributes:
        every: the period in steps; a refresh also ends each epoch.
        run: ``(state, X, y, index) -> state``, after step ``index``; -1 before the first step.
    """

    every: int
    run: Callable[[TrainState, Array, Array, Int[Array, ""]], TrainState]

    def is_due(self, index: int | Int[Array, ""], steps: int) -> bool | Bool[Array, ""]:
        """Returns True if a refresh follows the step of that index."""
        return ((index + 1) % self.every == 0) | (index + 1 == steps)

    def first(self, state: TrainState, X: Array, y: Array) -> TrainState:
        """Returns the state at the start of an epoch; the first epoch begins with a refresh."""
        return jax.lax.cond(
            state.epoch == 0, lambda s: self.run(s, X, y, jnp.int32(-1)), lambda s: s, state
        )

    def after(self, state: TrainState, X: Array, y: Array, index: Array, steps: int) -> TrainState:
        """Returns the state after the step of that index, refreshed if due."""
        return jax.lax.cond(
            self.is_due(index, steps), lambda s: self.run(s, X, y, index), lambda s: s, state
        )


def make_refreshes(
    method: Method, context: Context, placement: Placement = ONE_DEVICE
) -> tuple[Refresh, ...]:
    """Makes the refreshes of a method's parts; parts with the same period share one."""

    def refresh(every: int, refreshed: Refreshed) -> Refresh:
        def run(state: TrainState, X: Array, y: Array, index: Int[Array, ""]) -> TrainState:
            sample = sample_of(method, state, X, y, index, placement)
            model_state, method_state = refreshed(state.method_state, sample, context)
            return placement.keep(
                state._replace(model_state=model_state, method_state=method_state)
            )

        return Refresh(every, run)

    return tuple(refresh(*entry) for entry in method.refreshes().items())


def make_settle(
    method: Method, context: Context, placement: Placement = ONE_DEVICE
) -> Callable[[TrainState, X, Y], TrainState]:
    """Makes ``(state, X, y) -> state``, the state that is scored after an epoch's last update."""

    def settle(state: TrainState, X: Array, y: Array) -> TrainState:
        sample = sample_of(method, state, X, y, jnp.int32(-1), placement)
        return placement.keep(state._replace(model_state=method.settle(sample, context)))

    return settle


def sample_of(
    method: Method,
    state: TrainState,
    X: Array,
    y: Array,
    index: Int[Array, ""],
    placement: Placement,
) -> Sample:
    """Returns the training rows after the step of that index, with the state."""

    def weights(raw: PyTree) -> PyTree:
        return method.weights(raw, state.method_state)

    key, shard = probe_key(state, index), placement.shard_rows
    return Sample(state.params, state.model_state, weights, X, y, key, shard)


class EpochPlan(NamedTuple):
    """The functions that make up an epoch, for any runner.

    Attributes:
        step: a step made by `make_step`.
        batch_size: rows per step.
        augment: ``augment(key, rows)``, the augmentation of a batch.
        refreshes: the computations between steps.
        placement: the devices.
    """

    step: Step
    batch_size: int
    augment: Augment = unchanged
    refreshes: tuple[Refresh, ...] = ()
    placement: Placement = ONE_DEVICE


def make_epoch(plan: EpochPlan) -> Callable[[TrainState, X, Y], tuple[TrainState, StepMetrics]]:
    """Makes an epoch ``(state, X, y) -> (state, mean metrics of its steps)`` as one scan.

    The metrics are those of the network in training: before each step's update, with its noise and
    its batch statistics, on augmented rows.
    """

    def epoch(state: TrainState, X: Array, y: Array) -> tuple[TrainState, StepMetrics]:
        order = batch_order(state, len(X), plan.batch_size)

        def body(state: TrainState, index: Int[Array, ""]) -> tuple[TrainState, StepMetrics]:
            state, metrics = plan.step(state, batch_at(state, X, y, order, index, plan.augment))
            for refresh in plan.refreshes:
                state = refresh.after(state, X, y, index, len(order))
            return state, metrics

        for refresh in plan.refreshes:
            state = refresh.first(state, X, y)
        state, metrics = jax.lax.scan(body, state, jnp.arange(len(order)))
        # The loop may leave the state in other shardings than its steps do.
        state = plan.placement.keep(state._replace(epoch=state.epoch + 1))
        return state, jax.tree.map(jnp.mean, metrics)

    return epoch


#: The last update after which a training is looked at.
WITHIN = 100

#: Called with the state after an update.
Look = Callable[[TrainState], None]


def nothing(*_: object) -> None:
    """Does nothing: the host's work during an epoch, and the look at a state, by default."""


class Scanned(AheadOfTime):
    """A runner of an epoch as one compiled scan.

    Args:
        plan: the plan of the epoch.
        epoch: the epoch's function, if it is not the plan's alone.
    """

    def __init__(self, plan: EpochPlan, epoch: Callable[..., Any] | None = None):
        super().__init__(epoch or make_epoch(plan), donate_argnums=0)
        self._plan = plan

    def __call__(
        self,
        state: TrainState,
        X: AnyArray,
        y: AnyArray,
        meanwhile: Callable[[], None] = nothing,
        look: Look = nothing,
    ) -> tuple[TrainState, StepMetrics]:
        """Returns the state after the epoch, and the mean metrics of its steps.

        The state is consumed; ``meanwhile`` is called once, while the device computes, and ``look``
        with the state after the epoch, because no step of a scan can be looked at.
        """
        result: tuple[TrainState, StepMetrics] = super().__call__(state, X, y)
        meanwhile()
        look(result[0])
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
        self,
        state: TrainState,
        X: AnyArray,
        y: AnyArray,
        meanwhile: Callable[[], None] = nothing,
        look: Look = nothing,
    ) -> tuple[TrainState, StepMetrics]:
        """Returns the state after the epoch, and the mean metrics of its steps, fetched once.

        ``look`` is called after the last step, or after step `WITHIN` of a longer epoch.
        """
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
            if index + 1 == min(WITHIN, steps):
                look(state)
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
        return batch_at(state, X, y, order, index, self._plan.augment)


#: The modules that convolve; networks of other libraries may, and lose little step by step.
CONVOLVES = (nnx.Conv, nnx.ConvTranspose, Wrapped)

#: A runner of epochs.
Runner = Scanned | Stepwise


def loops_are_slow(model: nnx.Module) -> bool:
    """Returns True if this machine runs the network faster step by step than in a compiled loop."""
    has_convolution = any(isinstance(module, CONVOLVES) for _, module in nnx.iter_modules(model))
    return has_convolution and jax.default_backend() == "cpu"
