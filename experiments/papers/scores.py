"""What tables show of a trained network besides its accuracy: of its logits, or its weights."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from experiments.data.dataset import Dataset
from experiments.methods.population import scales_and_biases
from experiments.training.evaluate import CHUNK, evaluated_weights
from experiments.training.state import TrainState
from experiments.training.stream import standardized
from experiments.training.trainer import Trainer

Logits = Float[np.ndarray, "rows classes"]
Labels = Int[np.ndarray, " rows"]


def class_accuracy(logits: Logits, labels: Labels) -> float:
    """The accuracy of each class that has rows, averaged over these classes."""
    right = logits.argmax(1) == labels
    return float(np.mean([right[labels == label].mean() for label in np.unique(labels)]))


def top5_accuracy(logits: Logits, labels: Labels) -> float:
    """The share of rows whose label is among the five largest logits."""
    # Classes that beat the label: ties are the label's, as they are an arg max's first.
    own = np.take_along_axis(logits, labels[:, None], 1)
    return float(((logits > own).sum(1) < 5).mean())


#: By the names that a protocol and a table take.
SCORES: Mapping[str, Callable[[Logits, Labels], float]] = {
    "class_accuracy": class_accuracy,
    "top5_accuracy": top5_accuracy,
}


def gamma_squared(params: PyTree) -> float:
    """The mean square of the only normalizer's scales."""
    (scale,) = scales_and_biases(params)[0].values()
    return float(jnp.mean(jnp.square(scale)))


#: Those of the trained parameters.
OF_WEIGHTS: Mapping[str, Callable[[PyTree], float]] = {"gamma_squared": gamma_squared}


def scores_of(
    trainer: Trainer, state: TrainState, data: Dataset, names: Sequence[str]
) -> dict[str, float]:
    """The scores of a trained network on the test rows, streamed or not.

    Args:
        trainer: that trained it.
        state: after training.
        data: the two splits.
        names: of `SCORES` and `OF_WEIGHTS`; nothing is computed for none.
    """
    of_weights = {name: OF_WEIGHTS[name](state.params) for name in names if name in OF_WEIGHTS}
    names = [name for name in names if name in SCORES]
    if not names:
        return of_weights
    weights = evaluated_weights(trainer.method, state)
    apply = trainer.context.functional.apply

    @jax.jit
    def logits_of(weights: object, X: Array) -> Array:
        X = X if data.stream is None else standardized(data, X)
        return apply(weights, state.model_state, X, train=False)[0]

    found = [(np.asarray(logits_of(weights, X)), np.asarray(y)) for X, y in _test_batches(data)]
    logits, labels = (np.concatenate(each) for each in zip(*found, strict=True))
    return of_weights | {name: SCORES[name](logits, labels) for name in names}


def _test_batches(data: Dataset) -> Iterable[tuple[Array | np.ndarray, Array | np.ndarray]]:
    if data.stream is not None:
        return data.stream.test_batches(CHUNK)
    starts = range(0, len(data.X_test), CHUNK)
    return [(data.X_test[i : i + CHUNK], data.y_test[i : i + CHUNK]) for i in starts]
