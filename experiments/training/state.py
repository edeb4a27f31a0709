"""The records of training: state, batch and metrics; and the random keys of a run."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Num, PyTree, UInt

#: Arguments of a compiled function, which moves NumPy arrays to the device itself.
AnyArray = Array | np.ndarray


class TrainState(NamedTuple):
    """State of training: everything that a step changes, as arrays.

    Attributes:
        params: the raw parameters, reparametrization nodes and their noise included.
        model_state: the network's other variables: running statistics, random state.
        optimizer_state: the optimizer's state.
        method_state: the states of the method's parts, by name.
        seed: the seed of the run; with ``epoch`` it determines every batch.
        epoch: the number of finished epochs.
        skipped: the number of updates skipped because a number was not finite.
    """

    params: PyTree
    model_state: PyTree
    optimizer_state: PyTree
    method_state: dict[str, PyTree]
    seed: UInt[Array, ""]
    epoch: Int[Array, ""]
    skipped: Int[Array, ""]


class Batch(NamedTuple):
    """Rows of one step.

    Attributes:
        X: the rows as the network sees them.
        y: their labels.
        keys: one random key per row, for draws per sample.
    """

    X: Num[Array, "rows *shape"]
    y: Int[Array, "rows *positions"]
    keys: Key[Array, " rows"]


class Metrics(NamedTuple):
    """Means over samples: cross-entropy in nats, and the fraction classified correctly."""

    loss: Float[Array, "..."]
    accuracy: Float[Array, "..."]


class StepMetrics(NamedTuple):
    """Metrics of a step's batch, and the norm of the whole gradient."""

    loss: Float[Array, ""]
    accuracy: Float[Array, ""]
    gradient_norm: Float[Array, ""]


def run_keys(seed: UInt[Array, ""]) -> Key[Array, "4"]:
    """Returns the independent keys of a run: initialization, batches, noise, probes."""
    return jax.random.split(jax.random.key(seed), 4)


def epoch_keys(state: TrainState) -> Key[Array, "2"]:
    """Returns the keys of the coming epoch: for its order, and for its augmentation."""
    return jax.random.split(jax.random.fold_in(run_keys(state.seed)[1], state.epoch))


def row_keys(state: TrainState, index: Int[Array, ""], rows: int) -> Key[Array, " rows"]:
    """Returns one key per row of a batch of the coming epoch, for draws per sample."""
    key = jax.random.fold_in(jax.random.fold_in(run_keys(state.seed)[2], state.epoch), index)
    return jax.random.split(key, rows)


def probe_key(state: TrainState, index: Int[Array, ""]) -> Key[Array, ""]:
    """Returns the key for draws after the step of that index of the coming epoch."""
    return jax.random.fold_in(jax.random.fold_in(run_keys(state.seed)[3], state.epoch), index)


def is_key(leaf: Array) -> bool:
    """Returns True if a leaf holds random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
