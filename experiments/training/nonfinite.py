"""Steps whose loss, or anything they would leave behind, is not finite: stopped at, or left out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from experiments.methods.method import Method
from experiments.methods.part import Context, Output
from experiments.training.state import Batch, StepMetrics, TrainState
from experiments.training.step import Step
from jaxnorm import collect_preactivations

#: A mean as a device gave it.
Mean = float | np.floating[Any] | Float[np.ndarray, ""]


def guarded(step: Step, goes_on: bool = True) -> Step:
    """A step whose state stays finite; ``state.skipped`` counts the updates that were left out.

    All on the device: a selection of the old or the new state. It keeps both, and so costs more
    than a step that updates in place.

    Args:
        step: as `make_step` gives it. On several devices it must return the same metrics on all.
        goes_on: whether a step after one that was left out counts again.
    """

    def guarded_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        new, metrics = step(state, batch)
        takes = all_finite((new, metrics))
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


def mean_of_taken(mean: Mean, skipped: int, steps: int) -> Mean:
    """The mean over the steps that were taken, of a mean in which skipped ones count as 0."""
    return mean * steps / (steps - skipped) if skipped < steps else float("nan")


def first_nonfinite(method: Method, context: Context, state: TrainState, batch: Batch) -> str:
    """Runs one step's network again, and says which layer is the first that is not finite.

    Args:
        method: of the run.
        context: of the method.
        state: the state before that step.
        batch: of that step.
    """
    paths: list[str] = []

    def finite_layers(state: TrainState, batch: Batch) -> list[Bool[Array, ""]]:
        def apply(weights: PyTree, rows: Array) -> tuple[Array, PyTree]:
            return context.functional.apply(weights, state.model_state, rows, train=True)

        def network(weights: PyTree, rows: Array) -> Output:
            found, layers = collect_preactivations(apply, weights, rows, layout=context.kernels)
            paths[:] = layers  # In execution order; a dict that jit returns is sorted.
            logits, model_state = found
            return Output(logits, model_state, jnp.float32(0), list(layers.values()))

        weights = method.weights(state.params, state.method_state)
        forward = method.forward(network, state.params, state.method_state, batch.keys, context)
        return [jnp.isfinite(layer).all() for layer in forward(weights, batch.X).seen]

    flags = jax.device_get(jax.jit(finite_layers)(state, batch))
    for path, finite in zip(paths, flags, strict=True):
        if not finite:
            return f"first in the pre-activations of {path.removesuffix('/kernel')}"
    return "in the loss or the gradient; all pre-activations are finite"
