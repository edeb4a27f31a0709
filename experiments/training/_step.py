"""One step of training, as a pure function."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree

from experiments.methods import VarianceConstancy
from experiments.training._accumulate import accumulated
from experiments.training._average import average, own_keys, shared_keys
from experiments.training._loss import Batch, make_loss
from experiments.training._state import Metrics, TrainState
from jaxnorm import power_iteration

Step = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def make_step(
    apply: Callable[..., tuple[Array, PyTree]],
    optimizer: optax.GradientTransformation,
    variance_constancy: VarianceConstancy | None = None,
    stddev: PyTree = None,
    *,
    groups: int = 1,
    axis_name: str | None = None,
    accumulate: int = 1,
    dtype: DTypeLike = jnp.float32,
) -> Step:
    """A step ``(state, batch) -> (state, metrics of the batch)``.

    Args:
        apply: the network, as `jaxnorm.nnx.functionalize` gives it.
        optimizer: an optax optimizer, the method's edits included.
        variance_constancy: the settings of that loss, or None.
        stddev: the noise of the hidden kernels' products, a draw a sample; None for none.
        groups: the parts of the rows that it sees apart.
        axis_name: the mapped axis under shard_map and pmap, where the rows are the device's own;
            what devices find is averaged over it. None under jit, however arrays are sharded.
        accumulate: the microbatches whose gradients are averaged before the update.
        dtype: of weights and activations in the network; parameters, the optimizer, statistics and
            losses are float32.
    """

    loss = make_loss(apply, variance_constancy, stddev, groups, dtype)

    def measure(state: TrainState, batch: Batch) -> tuple[PyTree, tuple[PyTree, Metrics]]:
        gradient, (model_state, metrics) = jax.grad(loss, has_aux=True)(state.params, state, batch)
        return model_state, (gradient, metrics)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        own = state._replace(model_state=own_keys(state.model_state, axis_name))
        found = average(accumulated(measure, accumulate)(own, batch), axis_name)
        model_state, (gradient, metrics) = found
        updates, optimizer_state = optimizer.update(gradient, state.optimizer_state, state.params)
        params = optax.apply_updates(state.params, updates)
        state = state._replace(
            params=params,
            model_state=shared_keys(model_state, state.model_state, axis_name),
            optimizer_state=optimizer_state,
            vectors=power_iteration(params, state.vectors),
        )
        return state, metrics

    return step
