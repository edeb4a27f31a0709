"""Loss and accuracy of a trained network, on every row of a split."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from experiments.methods import without_betas
from experiments.training._loss import score
from experiments.training._placement import ONE_DEVICE, Placement
from experiments.training._state import Metrics, TrainState
from jaxnorm import attach, clean_parameters, effective

#: The rows that are evaluated at once; it bounds the memory of activations.
CHUNK = 512


def make_evaluate(
    apply: Callable[..., tuple[Array, PyTree]],
    noisy: bool,
    chunk: int = CHUNK,
    placement: Placement = ONE_DEVICE,
) -> Callable[[TrainState, Array, Array], Metrics]:
    """An evaluation ``(state, X, y) -> mean metrics`` in evaluation mode, without noise.

    Args:
        apply: the network, as `jaxnorm.nnx.functionalize` gives it.
        noisy: whether the optimizer injects noise, which evaluation must not see.
        chunk: the rows evaluated at once.
        placement: the devices that they are spread over.
    """

    def evaluate(state: TrainState, X: Array, y: Array) -> Metrics:
        params = state.params
        if noisy:
            params = clean_parameters(state.optimizer_state, params)
        params = effective(attach(without_betas(params), state.vectors))

        def chunk_sums(rows: tuple[Array, Array, Array]) -> Metrics:
            X, y, present = placement.spread_rows(rows)
            logits, _ = apply(params, state.model_state, X, train=False)
            return jax.tree.map(lambda each: jnp.sum(each, where=present), score(logits, y))

        size = round_up(min(chunk, len(X)), placement.data_devices)
        sums = jax.lax.map(chunk_sums, in_chunks(X, y, size))
        return jax.tree.map(lambda each: each.sum() / len(X), sums)

    return evaluate


def round_up(count: int, unit: int) -> int:
    """The smallest multiple of ``unit`` that is at least ``count``."""
    return -(-count // unit) * unit


def in_chunks(
    X: Float[Array, "rows *shape"], y: Int[Array, " rows"], chunk: int
) -> tuple[Array, Array, Array]:
    """Rows as (chunks, chunk, ...): X, y, and whether a row is there or only fills the last one."""
    missing = -len(X) % chunk

    def fold(rows: Array) -> Array:
        filled = jnp.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))
        return filled.reshape(-1, chunk, *rows.shape[1:])

    return fold(X), fold(y), fold(jnp.ones(len(X), bool))
