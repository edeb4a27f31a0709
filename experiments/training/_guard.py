"""What a step does when its loss, or anything it would leave behind, is not finite."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from experiments.training._loss import Batch
from experiments.training._state import Metrics, TrainState
from experiments.training._step import Step

#: ``record``: the run goes on with what it got. ``stop``: it ends, and says where. ``skip``: the
#: update is left out.
NonFinite = Literal["record", "stop", "skip"]


def guarded(step: Step, goes_on: bool = True) -> Step:
    """A step whose state stays finite; ``state.skipped`` counts the updates that were left out.

    All on the device: a selection of the old or the new state. It keeps both, and so costs more
    than a step that updates in place.

    Args:
        step: as `make_step` gives it. On several devices it must return the same metrics on all.
        goes_on: whether a step after one that was left out counts again.
    """

    def guarded_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        new, metrics = step(state, batch)
        takes = jnp.isfinite(metrics.loss) & all_finite(new)
        if not goes_on:
            takes &= state.skipped == 0
        old = (state._replace(skipped=state.skipped + 1), jax.tree.map(jnp.zeros_like, metrics))
        return jax.tree.map(lambda new, old: jnp.where(takes, new, old), (new, metrics), old)

    return guarded_step


@jax.jit
def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every floating-point number in a tree is finite."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.isfinite(x).all() for x in leaves]))


@jax.jit
def copied(tree: PyTree) -> PyTree:
    """The tree in memory of its own; one call, as one a leaf takes the host many times as long."""
    return jax.tree.map(jnp.copy, tree)


def mean_of_taken(mean: float, skipped: int, steps: int) -> float:
    """The mean over the steps that were taken, of a mean in which skipped ones count as 0."""
    return mean * steps / (steps - skipped) if skipped < steps else float("nan")
