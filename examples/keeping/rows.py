"""The rows of the probe: photographs to train on, to choose by and to report."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

#: Rows that a network is scored on at once, at most.
AT_ONCE = 500


class Arrays(NamedTuple):
    """The rows, on the device.

    Attributes:
        x: images, uint8, or standardized float32.
        y: labels, one per image.
    """

    x: jax.Array
    y: jax.Array


class Split(NamedTuple):
    """Rows to train on, to choose by, to report; and the scale of the pixels.

    Attributes:
        train, held_out, test: the rows.
        mean, std: of the pixels of the rows to train on, per channel.
    """

    train: Arrays
    held_out: Arrays
    test: Arrays
    mean: jax.Array
    std: jax.Array


def load_photographs(path: Path, side: int, numbers: tuple[int, int, int]) -> Split:
    """Returns the rows.

    Args:
        path: a file of X_train, y_train, X_test and y_test, uint8 images.
        side: pixels to which photographs are pooled.
        numbers: of photographs to train on, to choose by, and to report.
    """
    return _split(*_photographs(np.load(path), side, numbers), numbers)


def standardized(x: jax.Array, split: Split) -> jax.Array:
    """Returns pixels of mean 0 and variance 1 per channel."""
    return (x.astype(jnp.float32) - split.mean) / split.std


def order(seed: Any, rows: int, steps: int, batch: int) -> jax.Array:
    """Returns the rows of each batch, epoch by epoch, (steps, batch)."""
    per_epoch = rows // batch
    epochs = -(-steps // per_epoch)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(7), seed), epochs)
    rows_of = jax.vmap(lambda key: jax.random.permutation(key, rows)[: per_epoch * batch])(keys)
    return rows_of.reshape(-1, batch)[:steps]


def score(logits_of: Callable[[jax.Array], jax.Array], rows: Arrays) -> jax.Array:
    """Returns the accuracy."""
    size = next(size for size in range(AT_ONCE, 0, -1) if len(rows.x) % size == 0)
    x, y = (part.reshape(-1, size, *part.shape[1:]) for part in rows)
    right = jax.lax.map(lambda part: (logits_of(part[0]).argmax(-1) == part[1]).mean(), (x, y))
    return right.mean()


def _photographs(arrays: Any, side: int, numbers: tuple[int, int, int]) -> tuple[Any, Any]:
    """Returns pooled photographs, uint8, shuffled."""
    order = np.random.default_rng(0).permutation(len(arrays["X_train"]))[: sum(numbers[:2])]
    tested = np.random.default_rng(1).permutation(len(arrays["X_test"]))[: numbers[2]]
    x = np.concatenate([arrays["X_train"][order], arrays["X_test"][tested]])
    y = np.concatenate([arrays["y_train"][order], arrays["y_test"][tested]])
    pooled = x.shape[1] // side
    if pooled > 1:
        x = x.reshape(len(x), side, pooled, side, pooled, -1).mean((2, 4), dtype=np.float32)
        x = np.round(x).astype(np.uint8)
    return x, y


def _split(x: Any, y: Any, numbers: tuple[int, ...]) -> Split:
    ends = np.cumsum((0, *numbers))
    train = x[: numbers[0]].astype(np.float32)
    parts = [Arrays(jnp.asarray(x[a:b]), jnp.asarray(y[a:b], jnp.int32)) for a, b in pairwise(ends)]
    mean, std = train.mean((0, 1, 2)), train.std((0, 1, 2))
    return Split(parts[0], parts[1], parts[2], jnp.asarray(mean), jnp.asarray(std))
