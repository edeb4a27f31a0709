"""Rows of `whole.py`: photographs to classify, and images with objects to segment."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from examples.networks.training import Arrays, Split

#: A segmentation task's images to train on, to choose by, and to report.
SEGMENTED = (800, 200, 200)


def load_task(
    name: str, path: Path | None, side: int, numbers: tuple[int, int, int]
) -> tuple[Split, int]:
    """Returns the rows and the number of classes.

    Args:
        name: "photographs"; "shapes", discs and squares on noise; "pasted", textured discs and
            squares on photographs. The last two have three classes per pixel.
        path: a file of X_train, y_train, X_test and y_test, uint8 images.
        side: pixels to which photographs are pooled.
        numbers: of photographs to train on, to choose by, and to report.
    """
    if name == "photographs":
        x, y = _photographs(_arrays(path), side, numbers)
        return _split(x, y, tuple(numbers)), int(y.max()) + 1
    draw = np.random.default_rng(0)
    if name == "shapes":
        background = None
    elif name == "pasted":
        arrays = _arrays(path)
        chosen = np.random.default_rng(2).permutation(len(arrays["X_train"]))[: sum(SEGMENTED)]
        background = arrays["X_train"][chosen].astype(np.float32) / 255
    else:
        raise ValueError(f"the task is photographs, shapes or pasted, not {name!r}.")
    x, y = segmented(draw, sum(SEGMENTED), 32, background)
    return _split(x, y, SEGMENTED), 3


def _arrays(path: Path | None) -> Any:
    if path is None:
        raise ValueError("this task needs photographs: pass --data FILE.npz.")
    return np.load(path)


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


def segmented(
    draw: np.random.Generator, count: int, side: int, background: Any = None
) -> tuple[Any, Any]:
    """Returns images with discs (class 1) and squares (class 2) that may overlap, and label maps.

    Args:
        draw: random numbers.
        count: of images.
        side: pixels of a side.
        background: photographs from 0 to 1, (count, side, side, 3); None for plain grey.
    """
    rows, columns = np.mgrid[:side, :side]
    channels = 3
    x = (
        np.full((count, side, side, channels), 0.5, np.float32)
        if background is None
        else background
    )
    x, y = x.astype(np.float32).copy(), np.zeros((count, side, side), np.int32)
    for image, labels in zip(x, y, strict=True):
        for _ in range(draw.integers(2, 6)):
            kind, radius = draw.integers(1, 3), draw.integers(3, 8)
            center = draw.integers(0, side, 2)
            down, right = abs(rows - center[0]), abs(columns - center[1])
            inside = (
                down**2 + right**2 <= radius**2
                if kind == 1
                else np.maximum(down, right) <= (radius * 0.88)
            )
            image[inside] = _texture(draw, background, inside)
            labels[inside] = kind
        if background is None:
            image += draw.normal(0, 0.3, image.shape)
    return x, y


def _texture(draw: np.random.Generator, background: Any, inside: Any) -> Any:
    """Returns the pixels of an object: one colour, or a part of another photograph, recoloured."""
    color = draw.uniform(0, 1, 3)
    if background is None:
        return color
    other = background[draw.integers(len(background))][inside]
    return 0.5 * other + 0.5 * color
