"""Measures of a trained network besides its accuracy: of its logits, or its weights."""

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from experiments.data.dataset import Dataset
from experiments.methods.population import scales_and_biases
from experiments.methods.statistics import CHUNK
from experiments.training.evaluate import evaluated_weights
from experiments.training.state import TrainState
from experiments.training.stream import standardized
from experiments.training.trainer import Trainer

Logits = Float[np.ndarray, "rows classes"]
Labels = Int[np.ndarray, " rows"]


def class_accuracy(logits: Logits, labels: Labels) -> float:
    """Returns the accuracy of each class that has rows, averaged over these classes."""
    right = logits.argmax(1) == labels
    return float(np.mean([right[labels == label].mean() for label in np.unique(labels)]))


def top5_accuracy(logits: Logits, labels: Labels) -> float:
    """Returns the share of rows whose label is among the five largest logits."""
    # The number of larger logits; the label wins ties.
    label_logits = np.take_along_axis(logits, labels[:, None], 1)
    return float(((logits > label_logits).sum(1) < 5).mean())


#: Measures of the logits, by name.
SCORES: Mapping[str, Callable[[Logits, Labels], float]] = {
    "class_accuracy": class_accuracy,
    "top5_accuracy": top5_accuracy,
}


def gamma_squared(params: PyTree) -> float:
    """Returns the mean square of the only normalizer's scales."""
    (scale,) = scales_and_biases(params)[0].values()
    return float(jnp.mean(jnp.square(scale)))


#: Measures of the parameters, by name.
WEIGHT_SCORES: Mapping[str, Callable[[PyTree], float]] = {"gamma_squared": gamma_squared}


def version_of(names: Sequence[str]) -> str:
    """Returns a digest of the source of scores, which run outside of a training's programs."""
    by_name: dict[str, Callable[..., Any]] = {**SCORES, **WEIGHT_SCORES}
    around: list[Callable[..., Any]] = [scores_of, _test_batches, evaluated_weights, standardized]
    functions = [*(by_name[name] for name in sorted(names)), *around, scales_and_biases]
    source = "\n".join(map(inspect.getsource, functions))
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def scores_of(
    trainer: Trainer, state: TrainState, data: Dataset, names: Sequence[str]
) -> dict[str, float]:
    """Measures a trained network on the test rows, streamed or not.

    Args:
        trainer: the trainer of the network.
        state: the state after training.
        data: the two splits.
        names: names of `SCORES` and `WEIGHT_SCORES`.
    """
    weight_scores = {
        name: WEIGHT_SCORES[name](state.params) for name in names if name in WEIGHT_SCORES
    }
    names = [name for name in names if name in SCORES]
    if not names:
        return weight_scores
    weights = evaluated_weights(trainer.method, state)
    apply = trainer.context.functional.apply

    @jax.jit
    def logits_of(weights: object, X: Array) -> Array:
        X = X if data.stream is None else standardized(data, X)
        return apply(weights, state.model_state, X, train=False)[0]

    pairs = [(np.asarray(logits_of(weights, X)), np.asarray(y)) for X, y in _test_batches(data)]
    logits, labels = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return weight_scores | {name: SCORES[name](logits, labels) for name in names}


def _test_batches(data: Dataset) -> Iterable[tuple[Array | np.ndarray, Array | np.ndarray]]:
    if data.stream is not None:
        return data.stream.test_batches(CHUNK)
    starts = range(0, len(data.X_test), CHUNK)
    return [(data.X_test[i : i + CHUNK], data.y_test[i : i + CHUNK]) for i in starts]
