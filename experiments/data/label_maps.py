"""Label maps: a class at each pixel of an image."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, Shaped

from experiments.errors import UserError

Array = Shaped[np.ndarray, "..."]
Maps = Int[np.ndarray, "rows height width"]

WAY_OUT = (
    "np.unique(y, return_inverse=True)[1].reshape(y.shape) numbers them; void pixels (255, -1) are "
    "not left out: give them a class, or crop the images"
)


def are_label_maps(X: Array, y: Array) -> bool:
    """Returns True for images (rows, height, width, channels) with a label at each pixel.

    The labels have the shape of the images without their channels, or with one channel.
    """
    return X.ndim == 4 and y.shape in (X.shape[:3], (*X.shape[:3], 1))


def refuse_other_maps(name: str, X: Array, y: Array) -> None:
    """Raises UserError for labels with sides that are not those of the images."""
    if X.ndim == 4 and y.ndim > 2 and not are_label_maps(X, y):
        raise UserError(
            f"{name}: the labels have shape {y.shape} for images of shape {X.shape}; wanted a "
            f"class number at each pixel, {X.shape[:3]}, or one label per image, {X.shape[:1]}: "
            "resize both to the same sides, and take y.argmax(-1) of one-hot pixels."
        )


def number_maps(name: str, maps: Sequence[Array]) -> tuple[list[Maps], tuple[str, ...]]:
    """Class numbers at each pixel, from 0, and the names of the classes.

    Args:
        name: of the source, for messages.
        maps: the label maps of all splits, whole numbers 0 .. K - 1 or 1 .. K.

    Raises:
        UserError: for labels that are no whole numbers, and for numbers with gaps.
    """
    plain = [_whole_numbers(name, y) for y in maps]
    values = np.unique(np.concatenate([np.unique(y) for y in plain]))
    first, last = int(values[0]), int(values[-1])
    if first not in (0, 1) or last - first + 1 != len(values):
        shown = ", ".join(map(str, values[:5].tolist())) + ", ..." * (len(values) > 5)
        raise UserError(
            f"{name} has {len(values)} different labels of pixels from {first} to {last} "
            f"({shown}); wanted class numbers from 0 or 1 without gaps: {WAY_OUT}."
        )
    return [y - first for y in plain], tuple(map(str, values.tolist()))


def _whole_numbers(name: str, y: Array) -> Maps:
    """Returns the maps without an axis of one channel, as integers."""
    y = y[..., 0] if y.ndim == 4 else y
    if y.dtype.kind not in "fiub" or (y.dtype.kind == "f" and np.any(np.mod(y, 1) != 0)):
        raise UserError(
            f"{name} has labels of pixels of type {y.dtype}; wanted whole numbers: {WAY_OUT}."
        )
    return y.astype(np.int64 if y.dtype.itemsize > 4 else np.int32)
