"""A training step's arguments where only their shapes matter: nothing is computed or held."""

import inspect
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.data.dataset import Dataset
from experiments.training.state import Batch, TrainState
from experiments.training.trainer import Trainer


def zeros(row: tuple[int, ...], rows: int, classes: int) -> Dataset:
    """Rows and labels that take no memory."""
    X, y = np.broadcast_to(np.float32(0), (rows, *row)), np.broadcast_to(np.int32(0), rows)
    return Dataset(X, y, X, y, "zeros", classes)


def shapes_of(trainer: Trainer, X: Any, y: Any) -> tuple[TrainState, Batch]:
    """The shapes of the state and of a batch of such rows."""
    state = jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), X)
    keys = partial(jax.random.split, jax.random.key(0), len(X))
    return state, jax.eval_shape(lambda X, y: Batch(X, y, keys()), X, y)
