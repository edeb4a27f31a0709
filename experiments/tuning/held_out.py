"""Training rows that settings are chosen on, which are never those that a result is tested on."""

from collections.abc import Callable

import numpy as np

from experiments.data.dataset import Dataset
from experiments.errors import UserError

#: The seed of a trial is that of the result plus this: other initializations, batches and noise.
OFFSET = 1_000_000

#: One of so many training rows is held out.
PARTS = 5


def held_out(load: Callable[[int], Dataset], seed: int) -> Dataset:
    """The training rows of a result's seed: most to train on, the others in the test's place.

    Each seed chooses for itself: where the split depends on the seed, the training rows of one are
    test rows of another.

    Args:
        load: the dataset of a seed.
        seed: of the trial; the result's plus `OFFSET`.

    Raises:
        UserError: for streamed rows, and for too few.
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
    test, train = (
        (dataset.X_train[rows], dataset.y_train[rows]) for rows in np.split(order, [count])
    )
    return dataset.split_anew(train, test)
