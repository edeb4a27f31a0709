"""Shapes of a training step's arguments, without computing or holding them."""

import inspect
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.data.dataset import Dataset
from experiments.training.state import Batch, TrainState
from experiments.training.trainer import Trainer


def zeros(row: tuple[int, ...], rows: int, classes: int) -> Dataset:
    """Returns a dataset of zeros that takes no memory."""
    X, y = np.broadcast_to(np.float32(0), (rows, *row)), np.broadcast_to(np.int32(0), rows)
    return Dataset(X, y, X, y, "zeros", classes)


def shapes_of(trainer: Trainer, X: Any, y: Any) -> tuple[TrainState, Batch]:
    """Returns the shapes of the training state and of a batch of such rows."""
    state = jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), X)
    keys = partial(jax.random.split, jax.random.key(0), len(X))
    return state, jax.eval_shape(lambda X, y: Batch(X, y, keys()), X, y)
