"""Measures of a network trained on label maps: mean intersection over union, and some maps."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from experiments.data.dataset import Dataset
from experiments.training.evaluate import evaluated_weights, make_evaluate
from experiments.training.run import Run
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer

#: The score of a run in `Run.scores`.
MEAN_IOU = "mean_iou"

#: The number of test images whose predicted maps are kept for pictures.
SHOWN = 4

Confusion = Float[np.ndarray, "classes classes"]


def with_maps(run: Run, trainer: Trainer, dataset: Dataset) -> Run:
    """Returns the run with its mean intersection over union, and its first predicted maps."""
    if not dataset.has_label_maps or run.state is None:
        return run
    X, y = trainer.placement.replicate(dataset[2:4])
    found = jax.jit(make_confusion(trainer, dataset.num_classes))(run.state, X, y)
    maps = jax.jit(partial(predict, trainer))(run.state, X[:SHOWN])
    scores = {**run.scores, MEAN_IOU: mean_iou(np.asarray(found))}
    small = np.min_scalar_type(dataset.num_classes)
    return run._replace(scores=scores, maps=np.asarray(maps).astype(small))


def mean_iou(confusion: Confusion) -> float:
    """Returns the intersection over union of a class, averaged over classes.

    IoU_k = C_kk / (sum_l C_kl + sum_l C_lk - C_kk). A class that no pixel has, in truth and in
    prediction, does not count.

    Args:
        confusion: the pixels of each true class (rows) and each predicted one (columns), or their
            shares.
    """
    both = np.diag(confusion).astype(float)
    either = confusion.sum(0, dtype=float) + confusion.sum(1, dtype=float) - both
    return float(np.mean(both[either > 0] / either[either > 0]))


def make_confusion(
    trainer: Trainer, classes: int
) -> Callable[[TrainState, Array, Array], Float[Array, "classes classes"]]:
    """Makes the function ``(state, X, y) -> confusion matrix``, in pixels per row."""
    apply, place = trainer.context.functional.apply, trainer.placement
    counts = partial(confusions, classes=classes)
    return make_evaluate(trainer.method, apply, placement=place, measure=counts)


def confusions(
    logits: Float[Array, "rows *positions classes"],
    labels: Int[Array, "rows *positions"],
    classes: int,
) -> Float[Array, "rows {classes} {classes}"]:
    """Counts each row's pixels by their true and their predicted class."""
    pairs = classes * labels + logits.argmax(-1).astype(labels.dtype)
    counts = jax.vmap(lambda each: jnp.bincount(each.ravel(), length=classes**2))(pairs)
    return counts.reshape(-1, classes, classes).astype(jnp.float32)


def predict(
    trainer: Trainer, state: TrainState, X: Shaped[Array, "rows *shape"]
) -> Int[Array, "rows *positions"]:
    """Returns the class with the largest logit at each pixel, the same on all devices."""
    weights = evaluated_weights(trainer.method, state)
    logits, _ = trainer.context.functional.apply(weights, state.model_state, X, train=False)
    return trainer.placement.everywhere(logits.argmax(-1))
