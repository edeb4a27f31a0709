"""Measures after an epoch: loss and accuracy on every row of a split, norm, drift, finiteness."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Num, PyTree

from experiments.methods.method import Method
from experiments.methods.part import Context
from experiments.methods.statistics import CHUNK, rows_at_once
from experiments.training.devices import ONE_DEVICE, Placement
from experiments.training.nonfinite import all_finite, copied
from experiments.training.state import StepMetrics, TrainState
from experiments.training.step import score

#: ``(state, X, y) -> mean metrics``.
Evaluate = Callable[[TrainState, Array, Array], Any]

#: ``(logits, y) -> metrics of each row``.
Measure = Callable[[Array, Array], Any]


def make_evaluate(
    method: Method,
    apply: Callable[..., tuple[Array, PyTree]],
    chunk: int = CHUNK,
    placement: Placement = ONE_DEVICE,
    measure: Measure = score,
) -> Evaluate:
    """Makes an evaluation ``(state, X, y) -> mean metrics``, in evaluation mode without noise.

    Args:
        method: the method that wraps the network.
        apply: the network's function, from `jaxnorm.nnx.functionalize`.
        chunk: the number of rows evaluated at once.
        placement: the devices over which rows are sharded.
        measure: the metrics of each row: loss and accuracy by default.
    """

    def evaluate(state: TrainState, X: Array, y: Array) -> Any:
        weights = evaluated_weights(method, state)

        def chunk_sums(rows: tuple[Array, Array, Array]) -> Any:
            X, y, present = placement.shard_rows(rows)
            logits, _ = apply(weights, state.model_state, X, train=False)
            return jax.tree.map(lambda each: _sum_of(each, present), measure(logits, y))

        devices = placement.data_devices
        size = -(-min(rows_at_once(y, chunk), len(X)) // devices) * devices
        sums = jax.lax.map(chunk_sums, in_chunks(X, y, size))
        return jax.tree.map(lambda each: each.sum(0) / len(X), sums)

    return evaluate


def _sum_of(metric: Float[Array, "rows *shape"], present: Bool[Array, " rows"]) -> Array:
    """Sums a metric over the rows that are present."""
    return jnp.sum(metric, 0, where=jnp.expand_dims(present, range(1, metric.ndim)))


def evaluated_weights(method: Method, state: TrainState) -> PyTree:
    """Returns the weights of a trained network in evaluation: without noise."""
    return method.weights(method.clean(state.params, state.optimizer_state), state.method_state)


def in_chunks(
    X: Num[Array, "rows *shape"], y: Int[Array, "rows *positions"], chunk: int
) -> tuple[Array, Array, Array]:
    """Pads and reshapes rows to (chunks, chunk, ...): X, y, and a mask of the real rows."""
    missing = -len(X) % chunk

    def fold(rows: Array) -> Array:
        filled = jnp.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))
        return filled.reshape(-1, chunk, *rows.shape[1:])

    return fold(X), fold(y), fold(jnp.ones(len(X), bool))


class Watched(NamedTuple):
    """A state and the metrics of the epoch before it.

    Attributes:
        kept: a copy of the state, because the next epoch consumes it.
        finite: True if all numbers of the state and the metrics are finite.
        norm: the norm of all parameters.
        drift: the distance of the constrained kernels from their set.
    """

    kept: TrainState
    finite: Bool[Array, ""]
    norm: Float[Array, ""]
    drift: Float[Array, ""]


def make_watch(method: Method, context: Context) -> Callable[[TrainState, StepMetrics], Watched]:
    """Makes the function ``(state, metrics) -> Watched`` of a method's runs."""

    def watch(state: TrainState, metrics: StepMetrics) -> Watched:
        norm, drift = optax.tree.norm(state.params), method.drift(state.params, context)
        return Watched(copied(state), all_finite((state, metrics)), norm, drift)

    return watch
