"""Loss and accuracy of a trained network, on every row of a split."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Num, PyTree

from experiments.methods.method import Method
from experiments.training.devices import ONE_DEVICE, Placement
from experiments.training.state import Metrics, TrainState
from experiments.training.step import score

#: The number of rows evaluated at once, which bounds the memory of activations.
CHUNK = 512

#: ``(state, X, y) -> mean metrics``.
Evaluate = Callable[[TrainState, Array, Array], Metrics]


def make_evaluate(
    method: Method,
    apply: Callable[..., tuple[Array, PyTree]],
    chunk: int = CHUNK,
    placement: Placement = ONE_DEVICE,
) -> Evaluate:
    """Makes an evaluation ``(state, X, y) -> mean metrics``, in evaluation mode without noise.

    Args:
        method: the method that wraps the network.
        apply: the network's function, from `jaxnorm.nnx.functionalize`.
        chunk: the number of rows evaluated at once.
        placement: the devices over which rows are sharded.
    """

    def evaluate(state: TrainState, X: Array, y: Array) -> Metrics:
        weights = evaluated_weights(method, state)

        def chunk_sums(rows: tuple[Array, Array, Array]) -> Metrics:
            X, y, present = placement.shard_rows(rows)
            logits, _ = apply(weights, state.model_state, X, train=False)
            return jax.tree.map(lambda each: jnp.sum(each, where=present), score(logits, y))

        devices = placement.data_devices
        size = -(-min(chunk, len(X)) // devices) * devices
        sums = jax.lax.map(chunk_sums, in_chunks(X, y, size))
        return jax.tree.map(lambda each: each.sum() / len(X), sums)

    return evaluate


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
