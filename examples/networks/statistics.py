"""Statistics that batch normalization is scored with: of training rows, under the final parameters.

Running statistics lag behind the parameters, and momentum^n of them is the initial ones after n
updates. These are estimated anew after the last update instead: those of up to 2,048 training rows,
500 at once, 50 if labels are per pixel. Where a network was trained in batches of fewer than 64
rows, statistics of up to 256 such batches compete, and the smaller loss decides, on a fourth of the
rows that neither has seen.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

#: Training rows for statistics, or all if there are fewer.
ROWS = 2048

#: Batches of fewer rows are small: statistics of as many rows may suit the network better.
SMALL = 64

#: Small batches for statistics.
BATCHES = 256

#: ``estimate(params, state, x, size) -> state`` from batches of ``size`` of the rows.
Estimate = Callable[[Any, Any, jax.Array, int], Any]

Apply = Callable[..., tuple[jax.Array, Any]]


def keep(params: Any, state: Any, x: jax.Array, size: int) -> Any:
    """Returns the state as it is, for networks without statistics."""
    del params, x, size
    return state


def estimate_by(forgetful: Apply) -> Estimate:
    """Returns the estimate by a network of any library that keeps the last batch's statistics."""

    def estimate(params: Any, state: Any, x: jax.Array, size: int) -> Any:
        batches = x[: len(x) // size * size].reshape(-1, size, *x.shape[1:])
        of_batch = lambda batch: forgetful(params, state, batch, train=True)[1]  # noqa: E731
        return jax.tree.map(_mean, jax.lax.map(of_batch, batches))

    return estimate


def _mean(values: jax.Array) -> jax.Array:
    """Averages statistics over batches; counters have their last value."""
    return values.mean(0) if jnp.issubdtype(values.dtype, jnp.floating) else values[-1]


def at_once(y: jax.Array) -> int:
    """Returns the rows that a network computes with at once, fewer for label maps."""
    return 500 if y.ndim == 1 else 50


def settled(
    apply: Apply, estimate: Estimate, params: Any, state: Any, rows: Any, batch: int
) -> Any:
    """Returns the state that a trained network is scored with.

    Args:
        apply: the network.
        estimate: its estimate, or `keep`.
        params: the final parameters.
        state: the state after training.
        rows: training rows and their labels, in random order, as the network takes them.
        batch: the rows of an update.
    """
    if estimate is keep:
        return state
    x, y = (part[:ROWS] for part in rows)
    if batch >= SMALL or len(x) < 2 * batch:
        return estimate(params, state, x, min(at_once(y), len(x)))
    kept = len(x) - len(x) // 4
    large = estimate(params, state, x[:kept], min(at_once(y), kept))
    small = estimate(params, state, x[: min(kept, batch * BATCHES)], batch)
    of_large, of_small = (_loss(apply, params, each, x[kept:], y[kept:]) for each in (large, small))
    return jax.tree.map(partial(jnp.where, of_large <= of_small), large, small)


def _loss(apply: Apply, params: Any, state: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the mean loss in evaluation."""
    size = next(size for size in range(at_once(y), 0, -1) if len(x) % size == 0)

    def of_rows(rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        logits, _ = apply(params, state, rows[0], train=False)
        return optax.softmax_cross_entropy_with_integer_labels(logits, rows[1]).mean()

    return jax.lax.map(of_rows, tuple(z.reshape(-1, size, *z.shape[1:]) for z in (x, y))).mean()
