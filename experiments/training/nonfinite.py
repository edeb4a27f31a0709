"""Guards against steps that are not finite: they stop the run, or are left out."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from experiments.methods.method import Method
from experiments.methods.part import Context, Output
from experiments.training.state import Batch, StepMetrics, TrainState
from experiments.training.step import Step
from jaxnorm import collect_preactivations, read

#: A mean, fetched from a device or computed on the host.
Mean = float | np.floating[Any] | Float[np.ndarray, ""]


def guarded(step: Step, goes_on: bool = True) -> Step:
    """Wraps a step so that its state stays finite; ``state.skipped`` counts skipped updates.

    The device selects the old or the new state. It keeps both, which costs more than an update in
    place.

    Args:
        step: a step made by `make_step`. It must return the same metrics on all devices.
        goes_on: if False, every step after a skipped one is skipped too.
    """

    def guarded_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        new, metrics = step(state, batch)
        is_finite = all_finite((new, metrics))
        if not goes_on:
            is_finite &= state.skipped == 0
        old = (state._replace(skipped=state.skipped + 1), jax.tree.map(jnp.zeros_like, metrics))
        return jax.tree.map(lambda new, old: jnp.where(is_finite, new, old), (new, metrics), old)

    return guarded_step


@jax.jit
def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Returns True if every floating-point number in a tree is finite."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.isfinite(x).all() for x in leaves]))


@jax.jit
def copied(tree: PyTree) -> PyTree:
    """Copies a tree in one compiled call, because a call per leaf takes the host far longer."""
    return jax.tree.map(jnp.copy, tree)


def mean_of_taken(mean: Mean, skipped: int, steps: int) -> Mean:
    """Returns the mean over the steps taken, from a mean in which skipped steps count as 0."""
    return mean * steps / (steps - skipped) if skipped < steps else float("nan")


def first_nonfinite(method: Method, context: Context, state: TrainState, batch: Batch) -> str:
    """Runs one step's network again, and names the first layer that is not finite.

    Args:
        method: the method of the run.
        context: the method's context.
        state: the state before that step.
        batch: the batch of that step.
    """
    paths: list[str] = []

    def finite_layers(state: TrainState, batch: Batch) -> list[Bool[Array, ""]]:
        def apply(weights: PyTree, rows: Array) -> tuple[Array, PyTree]:
            return context.functional.apply(weights, state.model_state, rows, train=True)

        def network(weights: PyTree, rows: Array) -> Output:
            result, layers = collect_preactivations(
                read(apply, weights, rows), layout=context.kernels
            )
            paths[:] = layers  # In execution order; a dict that jit returns is sorted.
            logits, model_state = result
            return Output(logits, model_state, jnp.float32(0), [*layers.values(), logits])

        weights = method.weights(state.params, state.method_state)
        forward = method.forward(network, state.params, state.method_state, batch.keys, context)
        return [jnp.isfinite(layer).all() for layer in forward(weights, batch.X).extra]

    flags = jax.device_get(jax.jit(finite_layers)(state, batch))
    for path, finite in zip(paths, flags[:-1], strict=True):
        if not finite:
            return f"first in the pre-activations of {path.removesuffix('/kernel')}"
    if not flags[-1]:
        return "first in the logits; all pre-activations are finite"
    return "in the loss or the gradient; all pre-activations are finite"
