"""What training carries from step to step, what a step sees and measures, and the keys of a run."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Num, PyTree, UInt

#: What a compiled function takes: it puts NumPy's arrays on the device itself.
AnyArray = Array | np.ndarray


class TrainState(NamedTuple):
    """Everything that one step changes; arrays only, so that any checkpoint library can keep it.

    Attributes:
        params: the raw parameters, reparametrization nodes and their noise included.
        model_state: the network's other variables: running statistics, random state.
        optimizer_state: the optimizer's.
        method_state: what the method's parts carry, by their names.
        seed: of the run; with ``epoch`` it determines every batch.
        epoch: the number of finished epochs.
        skipped: the updates that were left out because something was not finite.
    """

    params: PyTree
    model_state: PyTree
    optimizer_state: PyTree
    method_state: dict[str, PyTree]
    seed: UInt[Array, ""]
    epoch: Int[Array, ""]
    skipped: Int[Array, ""]


class Batch(NamedTuple):
    """The rows of a step.

    Attributes:
        X: as the network sees them.
        y: their labels.
        keys: one for each row, for what a method draws for each sample.
    """

    X: Num[Array, "rows *shape"]
    y: Int[Array, "rows *positions"]
    keys: Key[Array, " rows"]


class Metrics(NamedTuple):
    """Means over samples: cross-entropy in nats, and the fraction that is classified correctly."""

    loss: Float[Array, "..."]
    accuracy: Float[Array, "..."]


class StepMetrics(NamedTuple):
    """What a step measures: the metrics of its batch, and the norm of the whole gradient."""

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]
    gradient_norm: Float[Array, ""]


def run_keys(seed: UInt[Array, ""]) -> Key[Array, "4"]:
    """The independent keys of a run: initialization, batches, noise, probes."""
    return jax.random.split(jax.random.key(seed), 4)


def epoch_keys(state: TrainState) -> Key[Array, "2"]:
    """The keys of the coming epoch: of its order, and of its augmentation."""
    return jax.random.split(jax.random.fold_in(run_keys(state.seed)[1], state.epoch))


def row_keys(state: TrainState, index: Int[Array, ""], rows: int) -> Key[Array, " rows"]:
    """A key for each row of a batch of the coming epoch, for what is drawn for each sample."""
    key = jax.random.fold_in(jax.random.fold_in(run_keys(state.seed)[2], state.epoch), index)
    return jax.random.split(key, rows)


def probe_key(state: TrainState, index: Int[Array, ""]) -> Key[Array, ""]:
    """The key of what is drawn after the step of that index of the coming epoch."""
    return jax.random.fold_in(jax.random.fold_in(run_keys(state.seed)[3], state.epoch), index)


def is_key(leaf: Array) -> bool:
    """Whether a leaf holds random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
