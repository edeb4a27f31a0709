"""Loss and accuracy of a trained network, on every row of a split."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from experiments.methods import without_betas
from experiments.training._state import Metrics, TrainState
from experiments.training._step import score
from jaxnorm import attach, clean_parameters, effective

#: The rows that are evaluated at once; it bounds the memory of activations.
CHUNK = 512


def make_evaluate(
    apply: Callable[..., tuple[Array, PyTree]], noisy: bool, chunk: int = CHUNK
) -> Callable[[TrainState, Array, Array], Metrics]:
    """An evaluation ``(state, X, y) -> mean metrics`` in evaluation mode, without noise.

    Args:
        apply: the network, as `jaxnorm.nnx.functionalize` gives it.
        noisy: whether the optimizer injects noise, which evaluation must not see.
        chunk: the rows evaluated at once.
    """

    def evaluate(state: TrainState, X: Array, y: Array) -> Metrics:
        params = state.params
        if noisy:
            params = clean_parameters(state.optimizer_state, params)
        params = effective(attach(without_betas(params), state.vectors))

        def chunk_sums(rows: tuple[Array, Array, Array]) -> Metrics:
            X, y, present = rows
            logits, _ = apply(params, state.model_state, X, train=False)
            return jax.tree.map(lambda each: jnp.sum(each, where=present), score(logits, y))

        sums = jax.lax.map(chunk_sums, in_chunks(X, y, min(chunk, len(X))))
        return jax.tree.map(lambda each: each.sum() / len(X), sums)

    return evaluate


def in_chunks(
    X: Float[Array, "rows *shape"], y: Int[Array, " rows"], chunk: int
) -> tuple[Array, Array, Array]:
    """Rows as (chunks, chunk, ...): X, y, and whether a row is there or only fills the last one."""
    missing = -len(X) % chunk

    def fold(rows: Array) -> Array:
        filled = jnp.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))
        return filled.reshape(-1, chunk, *rows.shape[1:])

    return fold(X), fold(y), fold(jnp.ones(len(X), bool))
