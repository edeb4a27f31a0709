"""An epoch as one compiled scan over data that is on the device already."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from experiments._errors import UserError
from experiments.data import pad_crop_flip
from experiments.training._state import Metrics, TrainState
from experiments.training._step import Step

RunEpoch = Callable[
    [TrainState, Float[Array, "rows *shape"], Int[Array, " rows"]], tuple[TrainState, Metrics]
]


def make_epoch(step: Step, batch_size: int, augment: bool = False) -> RunEpoch:
    """An epoch ``(state, X, y) -> (state, mean metrics of its steps)``.

    The metrics are those of the network in training: before each step's update, with its noise and
    its batch statistics, on augmented rows.

    Args:
        step: as `make_step` gives it.
        batch_size: the rows of one step.
        augment: whether images are padded, cropped and mirrored.
    """

    def epoch(state: TrainState, X: Array, y: Array) -> tuple[TrainState, Metrics]:
        key = epoch_key(state)

        def next_step(state: TrainState, rows: Int[Array, " batch"]) -> tuple[TrainState, Metrics]:
            images = X[rows]
            if augment:
                # The first row of a batch names it: it comes once an epoch.
                images = pad_crop_flip(jax.random.fold_in(key, rows[0]), images)
            return step(state, (images, y[rows]))

        state, metrics = jax.lax.scan(next_step, state, batch_order(key, len(X), batch_size))
        return state._replace(epoch=state.epoch + 1), jax.tree.map(jnp.mean, metrics)

    return epoch


def epoch_key(state: TrainState) -> Key[Array, ""]:
    """The key of everything random in the epoch that comes next."""
    return jax.random.fold_in(run_keys(state.seed)[1], state.epoch)


def run_keys(seed: Int[Array, ""]) -> Key[Array, "3"]:
    """The independent keys of a run: initialization, batches, noise."""
    return jax.random.split(jax.random.key(seed), 3)


def batch_order(key: Key[Array, ""], rows: int, batch_size: int) -> Int[Array, "steps batch"]:
    """A random order of the rows, cut into batches; the remainder sits this epoch out."""
    steps = steps_per_epoch(rows, batch_size)
    return jax.random.permutation(key, rows)[: steps * batch_size].reshape(steps, batch_size)


def steps_per_epoch(rows: int, batch_size: int) -> int:
    """The number of whole batches in ``rows``."""
    if not 1 <= batch_size <= rows:
        raise UserError(
            f"the batch size is {batch_size} and there are {rows} training rows; take a "
            f"--batch-size from 1 to {rows}."
        )
    return rows // batch_size
