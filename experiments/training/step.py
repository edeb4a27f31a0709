"""One training step, from a batch to the updated parameters, as a pure function."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree, Shaped

from experiments.config import Config
from experiments.methods.method import Method
from experiments.methods.part import Context, Optimizer, Output
from experiments.training.parallel import average, own_keys, shared_keys
from experiments.training.private import per_row
from experiments.training.state import Batch, Metrics, StepMetrics, TrainState

Step = Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]

#: ``(raw parameters, state, batch) -> (loss, (new model state, metrics))``.
Loss = Callable[[PyTree, TrainState, Batch], tuple[Float[Array, ""], tuple[PyTree, Metrics]]]

#: ``(state, batch) -> (new model state, tree to average over batches)``.
Measure = Callable[[TrainState, Batch], tuple[PyTree, PyTree]]


def make_step(
    method: Method,
    context: Context,
    optimizer: Optimizer,
    config: Config,
    axis_name: str | None = None,
) -> Step:
    """Makes a step ``(state, batch) -> (state, metrics of the batch)``.

    Args:
        method: the method that wraps the network.
        context: the network and its layouts.
        optimizer: an optax optimizer, the method's edits included.
        config: the number of microbatches, and the type of weights and activations; parameters,
            the optimizer, statistics and losses are float32. With an epsilon, the optimizer takes
            the stacked gradients of single rows.
        axis_name: the mapped axis under shard_map and pmap, where the rows are the device's own;
            gradients and metrics are averaged over it. None under jit.
    """
    measure = gradient_of(make_loss(method, context, config.dtype))
    private = config.epsilon is not None
    measured = accumulated(per_row(measure) if private else measure, config.accumulate)

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        local = state._replace(model_state=own_keys(state.model_state, axis_name))
        model_state, (gradient, metrics) = average(measured(local, batch), axis_name)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer_state, state.params)
        params = optax.apply_updates(state.params, updates)
        apply = partial(training_logits, context, local.model_state)
        optimizer_state = method.after_update(optimizer_state, apply, params, batch.X, axis_name)
        state = state._replace(
            params=params,
            model_state=shared_keys(model_state, state.model_state, axis_name),
            optimizer_state=optimizer_state,
            method_state=method.after_step(params, state.method_state),
        )
        return state, StepMetrics(metrics.loss, metrics.accuracy, optax.tree.norm(gradient))

    return step


def make_loss(method: Method, context: Context, dtype: str) -> Loss:
    """Makes the loss of raw parameters, with weights and activations of a type."""

    def loss(
        raw: PyTree, state: TrainState, batch: Batch
    ) -> tuple[Float[Array, ""], tuple[PyTree, Metrics]]:
        def network(weights: PyTree, X: Array) -> Output:
            result = context.functional.apply(weights, state.model_state, X, train=True)
            return Output(*result, loss=jnp.float32(0))

        weights = method.weights(raw, state.method_state)
        weights = jax.tree.map(lambda x: x.astype(dtype), weights)
        # Tokens stay integers.
        X = batch.X.astype(dtype) if jnp.issubdtype(batch.X.dtype, jnp.floating) else batch.X
        forward = method.forward(network, raw, state.method_state, batch.keys, context)
        output = forward(weights, X)
        metrics = jax.tree.map(jnp.mean, score(output.logits.astype(jnp.float32), batch.y))
        return metrics.loss + output.loss, (output.model_state, metrics)

    return loss


def gradient_of(loss: Loss) -> Measure:
    """Returns the function of the new model state, and of the gradient and metrics, of a batch."""

    def measure(state: TrainState, batch: Batch) -> tuple[PyTree, tuple[PyTree, Metrics]]:
        gradient, (model_state, metrics) = jax.grad(loss, has_aux=True)(state.params, state, batch)
        return model_state, (gradient, metrics)

    return measure


def training_logits(context: Context, model_state: PyTree, weights: PyTree, X: Array) -> Array:
    """Returns the logits of the network in training, as a function of its plain weights."""
    logits: Array = context.functional.apply(weights, model_state, X, train=True)[0]
    return logits


def score(
    logits: Float[Array, "rows *positions classes"], labels: Int[Array, "rows *positions"]
) -> Metrics:
    """Returns each row's cross-entropy, and 1 if the largest logit is the label's, else 0.

    Rows with a label at each position get the means over positions.
    """
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    right = (logits.argmax(-1) == labels).astype(jnp.float32)
    return Metrics(*(each.mean(range(1, each.ndim)) for each in (loss, right)))


def accumulated(measure: Measure, count: int) -> Measure:
    """Averages ``measure`` over ``count`` microbatches, and threads the model state through them.

    The optimizer sees one gradient, so its schedule and the noise count whole batches.

    Args:
        measure: a pure function with a mean over rows as its second result.
        count: the number of microbatches, a divisor of the batch size.
    """
    if count == 1:
        return measure

    def over_microbatches(state: TrainState, batch: Batch) -> tuple[PyTree, PyTree]:
        parts = jax.tree.map(lambda x: microbatches(x, count), batch)
        first = jax.tree.map(lambda x: x[0], parts)
        zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(measure, state, first)[1])

        def add(carry: tuple[PyTree, PyTree], part: Batch) -> tuple[tuple[PyTree, PyTree], None]:
            model_state, total = carry
            model_state, measured = measure(state._replace(model_state=model_state), part)
            return (model_state, jax.tree.map(jnp.add, total, measured)), None

        (model_state, total), _ = jax.lax.scan(add, (state.model_state, zeros), parts)
        return model_state, jax.tree.map(lambda x: x / count, total)

    return over_microbatches


def microbatches(
    rows: Shaped[Array, "rows *shape"], count: int
) -> Shaped[Array, "{count} part *shape"]:
    """Splits rows into ``count`` parts of every count-th row: each device's rows go evenly to all.

    So the parts are the same on any number of devices, and no row changes its device.
    """
    parts = rows.reshape(len(rows) // count, count, *rows.shape[1:])
    return jnp.moveaxis(parts, 1, 0)
