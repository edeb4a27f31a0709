"""A batch that is too large for the memory, in parts one after the other."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from experiments.training._state import TrainState

#: ``(state, batch) -> (new model state, what is averaged over batches)``.
Measure = Callable[[TrainState, PyTree], tuple[PyTree, PyTree]]


def accumulated(measure: Measure, count: int) -> Measure:
    """The mean of what ``measure`` finds on ``count`` microbatches; the model state goes along.

    The optimizer sees one gradient, so its schedule and the noise count whole batches.

    Args:
        measure: a pure function with a mean over rows as its second result.
        count: the microbatches of a batch, which it divides.
    """
    if count == 1:
        return measure

    def over_microbatches(state: TrainState, batch: PyTree) -> tuple[PyTree, PyTree]:
        parts = jax.tree.map(lambda x: microbatches(x, count), batch)
        first = jax.tree.map(lambda x: x[0], parts)
        zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(measure, state, first)[1])

        def add(carry: tuple[PyTree, PyTree], part: PyTree) -> tuple[tuple[PyTree, PyTree], None]:
            model_state, total = carry
            model_state, found = measure(state._replace(model_state=model_state), part)
            return (model_state, jax.tree.map(jnp.add, total, found)), None

        (model_state, total), _ = jax.lax.scan(add, (state.model_state, zeros), parts)
        return model_state, jax.tree.map(lambda x: x / count, total)

    return over_microbatches


def microbatches(rows: Float[Array, "rows *shape"], count: int) -> Float[Array, "count few *shape"]:
    """Every count-th row, and the next ones: of each device's rows the same share in every part.

    So the parts are the same on any number of devices, and no row changes its device.
    """
    parts = rows.reshape(len(rows) // count, count, *rows.shape[1:])
    return jnp.moveaxis(parts, 1, 0)
