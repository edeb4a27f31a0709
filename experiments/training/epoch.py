"""An epoch: the order of its batches, its steps, and the refreshes between them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Num, PyTree

from experiments.augmentation.table import Augment, unchanged
from experiments.errors import UserError
from experiments.methods.method import Method, Refreshed
from experiments.methods.part import Context, Sample
from experiments.training.devices import ONE_DEVICE, Placement
from experiments.training.state import (
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

#: ``(state, X, y, order, index) -> (state, metrics)``: the step of batch ``index``.
IndexedStep = Callable[[TrainState, X, Y, Order, Int[Array, ""]], tuple[TrainState, StepMetrics]]


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


def make_indexed_step(step: Step, augment: Augment = unchanged) -> IndexedStep:
    """Makes a step that takes its own batch out of the data, and augments it.

    Args:
        step: a step made by `make_step`.
        augment: ``augment(key, rows)``, the augmentation of a batch.
    """

    def indexed_step(
        state: TrainState, X: Array, y: Array, order: Order, index: Int[Array, ""]
    ) -> tuple[TrainState, StepMetrics]:
        rows = order[index]
        return step(state, batch_of(state, X[rows], y[rows], index, augment))

    return indexed_step


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
            def weights(raw: PyTree) -> PyTree:
                return method.weights(raw, state.method_state)

            key, shard = probe_key(state, index), placement.shard_rows
            sample = Sample(state.params, state.model_state, weights, X, y, key, shard)
            model_state, method_state = refreshed(state.method_state, sample, context)
            return placement.keep(
                state._replace(model_state=model_state, method_state=method_state)
            )

        return Refresh(every, run)

    return tuple(refresh(*entry) for entry in method.refreshes().items())


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
    indexed_step = make_indexed_step(plan.step, plan.augment)

    def epoch(state: TrainState, X: Array, y: Array) -> tuple[TrainState, StepMetrics]:
        order = batch_order(state, len(X), plan.batch_size)

        def body(state: TrainState, index: Int[Array, ""]) -> tuple[TrainState, StepMetrics]:
            state, metrics = indexed_step(state, X, y, order, index)
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
