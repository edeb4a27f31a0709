"""An epoch as one compiled scan over data that is on the device already."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from experiments._errors import UserError
from experiments.data import Augment, unchanged
from experiments.training._keys import row_keys, run_keys
from experiments.training._loss import Batch
from experiments.training._placement import ONE_DEVICE, Placement
from experiments.training._refresh import Refresh, refreshed_after, refreshed_first
from experiments.training._state import Metrics, TrainState
from experiments.training._step import Step

X = Float[Array, "rows *shape"]
Y = Int[Array, " rows"]
Order = Int[Array, "steps batch"]

#: ``(state, X, y, order, index) -> (state, metrics)``: the step of batch ``index``.
IndexedStep = Callable[[TrainState, X, Y, Order, Int[Array, ""]], tuple[TrainState, Metrics]]
RunEpoch = Callable[[TrainState, X, Y], tuple[TrainState, Metrics]]


def make_indexed_step(step: Step, augment: Augment = unchanged) -> IndexedStep:
    """A step that takes its own batch out of the data, and augments it.

    Args:
        step: as `make_step` gives it.
        augment: what changes the rows of a batch, with a key.
    """

    def indexed_step(
        state: TrainState, X: Array, y: Array, order: Order, index: Int[Array, ""]
    ) -> tuple[TrainState, Metrics]:
        rows = order[index]
        key = jax.random.fold_in(epoch_keys(state)[1], index)
        keys = row_keys(state.seed, state.epoch, index, len(rows))
        return step(state, Batch(augment(key, X[rows]), y[rows], keys))

    return indexed_step


def make_epoch(
    indexed_step: IndexedStep,
    batch_size: int,
    refresh: Refresh | None = None,
    placement: Placement = ONE_DEVICE,
) -> RunEpoch:
    """An epoch ``(state, X, y) -> (state, mean metrics of its steps)``.

    The metrics are those of the network in training: before each step's update, with its noise and
    its batch statistics, on augmented rows.

    Args:
        indexed_step: as `make_indexed_step` gives it.
        batch_size: the rows of one step.
        refresh: what is done between steps, if anything is.
        placement: the devices.
    """

    def epoch(state: TrainState, X: Array, y: Array) -> tuple[TrainState, Metrics]:
        order = batch_order(state, len(X), batch_size)

        def body(state: TrainState, index: Int[Array, ""]) -> tuple[TrainState, Metrics]:
            state, metrics = indexed_step(state, X, y, order, index)
            return refreshed_after(refresh, state, X, y, index, len(order)), metrics

        state = refreshed_first(refresh, state, X, y)
        state, metrics = jax.lax.scan(body, state, jnp.arange(len(order)))
        # The loop may leave the state spread otherwise than its steps do.
        state = placement.keep(state._replace(epoch=state.epoch + 1))
        return state, jax.tree.map(jnp.mean, metrics)

    return epoch


def batch_order(state: TrainState, rows: int, batch_size: int) -> Order:
    """A random order of the rows, cut into batches; the remainder sits this epoch out."""
    steps = steps_per_epoch(rows, batch_size)
    order = jax.random.permutation(epoch_keys(state)[0], rows)
    return order[: steps * batch_size].reshape(steps, batch_size)


def epoch_keys(state: TrainState) -> Key[Array, "2"]:
    """The keys of the coming epoch: of its order, and of its augmentation."""
    return jax.random.split(jax.random.fold_in(run_keys(state.seed)[1], state.epoch))


def steps_per_epoch(rows: int, batch_size: int) -> int:
    """The number of whole batches in ``rows``."""
    if not 1 <= batch_size <= rows:
        raise UserError(
            f"the batch size is {batch_size} and there are {rows} training rows; take a "
            f"--batch-size from 1 to {rows}."
        )
    return rows // batch_size
