"""The augmentations by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
from jaxtyping import Array, Key, Num

from experiments.augmentation.clouds import rotate_and_jitter, scale_shift_and_jitter
from experiments.augmentation.images import cutout, flip, pad_crop_flip, resized_crop_flip
from experiments.augmentation.policies import Policies, fast_autoaugment
from experiments.augmentation.published import read_policies
from experiments.errors import UserError, unknown

#: The augmentation whose name may be followed by ``:FILE``, a file of published sub-policies.
POLICIES = "fast-autoaugment-cutout"

Rows = Num[Array, "rows *shape"]
Augment = Callable[[Key[Array, ""], Rows], Rows]


class Augmentation(NamedTuple):
    """A function of a batch, and the kind of rows that it takes.

    Attributes:
        apply: ``(key, rows) -> rows``.
        rank: the number of axes of a row: 3 for images, 2 for point clouds; None for any.
        kind: the name of such rows in messages.
    """

    apply: Augment
    rank: int | None
    kind: str


def in_turn(*functions: Augment) -> Augment:
    """Composes functions, each with its own key."""

    def apply(key: Key[Array, ""], rows: Rows) -> Rows:
        for each, function in zip(jax.random.split(key, len(functions)), functions, strict=True):
            rows = function(each, rows)
        return rows

    return apply


def unchanged(key: Key[Array, ""], rows: Rows) -> Rows:
    """Returns the rows."""
    return rows


def _images(*functions: Augment) -> Augmentation:
    return Augmentation(functions[0] if len(functions) == 1 else in_turn(*functions), 3, "images")


def _with_policies(policies: Policies | None) -> Augmentation:
    return _images(partial(fast_autoaugment, policies=policies), pad_crop_flip, cutout)


AUGMENTATIONS: Mapping[str, Augmentation] = {
    "none": Augmentation(unchanged, None, "rows"),
    "flip": _images(flip),
    "crop-flip": _images(pad_crop_flip),
    "crop-flip-cutout": _images(pad_crop_flip, cutout),
    POLICIES: _with_policies(None),
    "resized-crop-flip": _images(resized_crop_flip),
    "points": Augmentation(rotate_and_jitter, 2, "point clouds"),
    "points-scaled": Augmentation(scale_shift_and_jitter, 2, "point clouds"),
}


def find_augmentation(
    name: str, dataset: str, shape: Sequence[int], has_label_maps: bool = False
) -> Augment:
    """Returns the augmentation of a name, for rows of a shape.

    Raises UserError for an unknown name, a file that the augmentation does not take, rows of
    another rank, or label maps, whose pixels would stay where they are.
    """
    kind, _, place = name.partition(":")
    if kind not in AUGMENTATIONS:
        raise unknown("augmentation", name, AUGMENTATIONS)
    if place and kind != POLICIES:
        raise UserError(f"{kind} takes no file, and {place!r} was given; {POLICIES} takes one.")
    if has_label_maps and kind != "none":
        raise UserError(
            f"--augment is {name}, which changes images and not the label maps of {dataset}; "
            "wanted none: leave out --augment, and save augmented images with their maps."
        )
    augmentation = _with_policies(read_policies(place)) if place else AUGMENTATIONS[kind]
    if augmentation.rank not in (None, len(shape)):
        raise UserError(
            f"{dataset} has rows of shape {tuple(shape)} and only {augmentation.kind} can be "
            f"augmented by {name}; leave out --augment."
        )
    return augmentation.apply
