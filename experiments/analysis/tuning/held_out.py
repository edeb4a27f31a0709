"""Held-out training rows for the choice of settings, disjoint from a result's test rows."""

from collections.abc import Callable

import numpy as np

from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.runs.spec import OFFSET

#: One in so many training rows is held out.
PARTS = 5


def held_out(load: Callable[[int], Dataset], seed: int) -> Dataset:
    """Splits the training rows of a result's seed: most for training, the others for testing.

    Each seed chooses its own settings: if the split depends on the seed, the training rows of one
    seed are test rows of another.

    Args:
        load: returns the dataset of a seed.
        seed: the seed of the trial: the result's plus `OFFSET`.

    Raises:
        UserError: for streamed rows, or too few rows.
    """
    dataset = load(seed - OFFSET)
    count = dataset.train_rows // PARTS
    if dataset.stream is not None or not count:
        raise UserError(
            f"--tune holds out one in {PARTS} training rows, and those of {dataset.name} are "
            f"{'streamed' if dataset.stream is not None else dataset.train_rows}; wanted "
            f"{PARTS} or more in memory: leave --tune out."
        )
    order = np.random.default_rng(seed).permutation(dataset.train_rows)
    test, train = np.split(order, [count])
    if dataset.y_train.ndim == 1:  # A class whose rows are all held out cannot be learned.
        test = test[np.isin(dataset.y_train[test], dataset.y_train[train])]
    rows = ((dataset.X_train[kept], dataset.y_train[kept]) for kept in (train, test))
    return dataset.split_anew(*rows)
