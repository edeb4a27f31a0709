"""What a step minimizes, and what it measures on the way."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Key, PyTree

from experiments.methods import (
    BETAS,
    VarianceConstancy,
    forward_with_loss,
    noisy,
    scales_and_biases,
    without_betas,
)
from experiments.training._state import Metrics, TrainState
from jaxnorm import attach, effective, gamma_decay


class Batch(NamedTuple):
    """The rows of a step.

    Attributes:
        X: as the network sees them.
        y: their labels.
        keys: one for each row, for what a method draws for each sample.
    """

    X: Float[Array, "rows *shape"]
    y: Int[Array, " rows"]
    keys: Key[Array, " rows"]


#: ``(params, state, batch) -> (loss, (new model state, metrics))``; the state's own parameters are
#: not read.
Loss = Callable[[PyTree, TrainState, Batch], tuple[Float[Array, ""], tuple[PyTree, Metrics]]]


def make_loss(
    apply: Callable[..., tuple[Array, PyTree]],
    variance_constancy: VarianceConstancy | None,
    stddev: PyTree,
    groups: int,
    dtype: DTypeLike,
) -> Loss:
    """The cross-entropy, and what the method adds to it; arguments as `make_step` takes them."""

    def loss(params: PyTree, state: TrainState, batch: Batch):
        X, y, keys = batch
        weights = effective(attach(without_betas(params), state.vectors))
        weights, X = jax.tree.map(lambda x: x.astype(dtype), (weights, X))

        def forward(weights: PyTree, X: Array) -> tuple[Array, PyTree]:
            return apply(weights, state.model_state, X, train=True)

        def forward_and_loss(weights: PyTree, X: Array):
            if variance_constancy is None:
                return forward(weights, X), jnp.float32(0)
            return forward_with_loss(forward, weights, params[BETAS], variance_constancy, X, groups)

        (logits, model_state), extra = noisy(forward_and_loss, stddev, keys)(weights, X)
        if state.strengths:
            extra = extra + gamma_decay(scales_and_biases(params)[0], state.strengths)
        metrics = jax.tree.map(jnp.mean, score(logits.astype(jnp.float32), y))
        return metrics.loss + extra, (model_state, metrics)

    return loss


def score(logits: Float[Array, "rows classes"], labels: Int[Array, " rows"]) -> Metrics:
    """Each row's cross-entropy, and 1 where the largest logit is the label's, else 0."""
    return Metrics(
        optax.softmax_cross_entropy_with_integer_labels(logits, labels),
        (logits.argmax(-1) == labels).astype(jnp.float32),
    )
