"""One step of training, as a pure function."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PyTree

from experiments.methods import (
    BETAS,
    VarianceConstancy,
    forward_with_loss,
    scales_and_biases,
    without_betas,
)
from experiments.training._accumulate import accumulated
from experiments.training._average import average, own_keys, shared_keys
from experiments.training._state import Metrics, TrainState
from jaxnorm import attach, effective, gamma_decay, power_iteration

Batch = tuple[Float[Array, "rows *shape"], Int[Array, " rows"]]
Step = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def make_step(
    apply: Callable[..., tuple[Array, PyTree]],
    optimizer: optax.GradientTransformation,
    variance_constancy: VarianceConstancy | None = None,
    *,
    groups: int = 1,
    axis_name: str | None = None,
    accumulate: int = 1,
    dtype: DTypeLike = jnp.float32,
) -> Step:
    """A step ``(state, (X, y)) -> (state, metrics of the batch)``.

    Args:
        apply: the network, as `jaxnorm.nnx.functionalize` gives it.
        optimizer: an optax optimizer, the method's edits included.
        variance_constancy: the settings of that loss, or None.
        groups: the parts of the rows that it sees apart.
        axis_name: the mapped axis under shard_map and pmap, where the rows are the device's own;
            what devices find is averaged over it. None under jit, however arrays are sharded.
        accumulate: the microbatches whose gradients are averaged before the update.
        dtype: of weights and activations in the network; parameters, the optimizer, statistics and
            losses are float32.
    """

    def loss_of(params: PyTree, state: TrainState, batch: Batch):
        X, y = batch
        weights = effective(attach(without_betas(params), state.vectors))
        weights, X = jax.tree.map(lambda x: x.astype(dtype), (weights, X))

        def forward(weights: PyTree, X: Array) -> tuple[Array, PyTree]:
            return apply(weights, state.model_state, X, train=True)

        if variance_constancy is None:
            (logits, model_state), extra = forward(weights, X), jnp.float32(0)
        else:
            (logits, model_state), extra = forward_with_loss(
                forward, weights, params[BETAS], variance_constancy, X, groups
            )
        if state.strengths:
            extra = extra + gamma_decay(scales_and_biases(params)[0], state.strengths)
        metrics = jax.tree.map(jnp.mean, score(logits.astype(jnp.float32), y))
        return metrics.loss + extra, (model_state, metrics)

    def measure(state: TrainState, batch: Batch) -> tuple[PyTree, tuple[PyTree, Metrics]]:
        gradient, (model_state, metrics) = jax.grad(loss_of, has_aux=True)(
            state.params, state, batch
        )
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


def score(logits: Float[Array, "rows classes"], labels: Int[Array, " rows"]) -> Metrics:
    """Each row's cross-entropy, and 1 where the largest logit is the label's, else 0."""
    return Metrics(
        optax.softmax_cross_entropy_with_integer_labels(logits, labels),
        (logits.argmax(-1) == labels).astype(jnp.float32),
    )
