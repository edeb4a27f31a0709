"""Running statistics that batch normalization is scored with, estimated anew after an epoch."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Num, PyTree

from experiments.methods.part import Context, Sample
from experiments.methods.reparametrized import subsample
from jaxnorm.nnx import estimate_statistics

#: The number of training rows for statistics; all rows if there are fewer.
ROWS = 2_048

#: The number of rows that a network computes with at once, which bounds the memory of activations.
CHUNK = 512

#: The number of labelled pixels at once, for label maps.
PIXELS = CHUNK * 32 * 32

#: Batches of fewer rows are small: statistics of as many rows at once may suit the network better.
SMALL = 64

#: The number of small batches for statistics.
BATCHES = 256

#: The words of tables on the statistics.
WORDS = (
    "Batch normalization is scored with statistics estimated anew after each epoch's last update, "
    f"not with running ones: those of up to {ROWS:,} training rows, {CHUNK} at once. If it trained "
    f"in batches of fewer than {SMALL} rows, statistics of up to {BATCHES} such batches compete, "
    "and the smaller loss decides, on a fourth of these rows that neither estimate has seen. "
    "So the momentum of a BatchNorm changes no figure."
)


def rows_at_once(y: Int[Array, "rows *positions"], chunk: int = CHUNK) -> int:
    """Returns the rows of a chunk, fewer for large label maps, whose activations take more."""
    return chunk if y.ndim < 3 else max(1, min(chunk, PIXELS // math.prod(y.shape[1:])))


def settled(sample: Sample, context: Context) -> PyTree:
    """Returns the model state with the statistics that the network is scored with."""
    # Rows may be sorted by class: minibatches of one class would normalize the classes away.
    order = jax.random.permutation(sample.key, min(len(sample.X), ROWS))
    X, y = (subsample(rows, ROWS)[order] for rows in (sample.X, sample.y))
    at_once, together = min(rows_at_once(y), len(X)), context.rows_together
    if together >= SMALL or len(X) < 2 * together:
        return _estimated(sample, context, sample.shard(X), at_once)
    kept = len(X) - len(X) // 4
    states = (
        _estimated(sample, context, X[:kept], min(at_once, kept)),
        _estimated(sample, context, X[: min(kept, together * BATCHES)], together),
    )
    large, small = (_loss(sample, context, state, X[kept:], y[kept:]) for state in states)
    return jax.tree.map(partial(jnp.where, large <= small), *states)


def _estimated(
    sample: Sample, context: Context, X: Num[Array, "rows *shape"], batch_size: int
) -> PyTree:
    weights, state = sample.weights(sample.raw), sample.model_state
    return estimate_statistics(context.model, weights, state, X, batch_size=batch_size)


def _loss(
    sample: Sample,
    context: Context,
    state: PyTree,
    X: Num[Array, "rows *shape"],
    y: Int[Array, "rows *positions"],
) -> Float[Array, ""]:
    """Returns the mean loss of the network in evaluation, with the statistics of a state."""
    weights = sample.weights(sample.raw)
    logits = context.functional.apply(weights, state, X, train=False)[0]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
