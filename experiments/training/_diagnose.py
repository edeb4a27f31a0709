"""Where the first number that is not finite comes from."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from experiments.data import find_augmentation
from experiments.methods import noisy, without_betas
from experiments.training._epoch import batch_order, make_indexed_step
from experiments.training._loss import Batch
from experiments.training._state import TrainState
from experiments.training._streamed import Streamed
from experiments.training._trainer import Trainer
from jaxnorm import attach, collect_preactivations, effective


def batch_of(trainer: Trainer, state: TrainState, X: Array, y: Array, index: int) -> Batch:
    """The batch of a step of the epoch that the state begins.

    Args:
        trainer: of the run.
        state: of any moment of that epoch.
        X: the training rows.
        y: their labels.
        index: of the step in the epoch.
    """
    if isinstance(trainer.epoch, Streamed):
        return trainer.epoch.batch(state, index)
    settings = trainer.settings
    order = batch_order(state, len(X), settings.batch_size)
    augment = find_augmentation(settings.augment, "the data", X.shape[1:])
    batch = jax.jit(make_indexed_step(lambda state, batch: (state, batch), augment))
    return batch(state, X, y, order, jnp.int32(index))[1]


def first_nonfinite(trainer: Trainer, state: TrainState, batch: Batch) -> str:
    """Runs one step's network again, and says which layer is the first that is not finite.

    Args:
        trainer: of the run.
        state: the state before that step.
        batch: of that step.
    """
    layers: list[str] = []

    def finite_layers(state: TrainState, batch: Batch) -> list[Bool[Array, ""]]:
        def apply(weights: PyTree, rows: Array) -> tuple[Array, PyTree]:
            return trainer.apply(weights, state.model_state, rows, train=True)

        weights = effective(attach(without_betas(state.params), state.vectors))
        collect = partial(collect_preactivations, apply)
        _, found = noisy(collect, trainer.stddev, batch.keys)(weights, batch.X)
        layers.extend(found)  # In execution order; a dict that jit returns is sorted.
        return [jnp.isfinite(each).all() for each in found.values()]

    flags = jax.device_get(jax.jit(finite_layers)(state, batch))
    for path, finite in zip(layers, flags, strict=True):
        if not finite:
            return f"first in the pre-activations of {path.removesuffix('/kernel')}"
    return "in the loss or the gradient; all pre-activations are finite"
