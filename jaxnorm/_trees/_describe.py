"""A table of what a layout constrains."""

import math
from typing import Any

import numpy as np
from jaxtyping import PyTree

from jaxnorm._layout import Layout, flax_layout
from jaxnorm._trees._constrained import axes_of_leaves, setting_per_leaf
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import is_absent

#: What ``optax.add_decayed_weights`` takes as its mask, and True for all; None: nothing is said.
Mask = Any

#: Path, shape, fan-in axes or None for a free leaf, and whether it is decayed, if that is known.
_Leaf = tuple[Any, Axes, Axes | None, bool | None]

_HEADER = ("leaf", "shape", "fan-in axes", "fan-in", "units", "decayed")


def describe(params: PyTree, layout: Layout = flax_layout, *, decayed: Mask = None) -> str:
    """Which leaves are constrained, along which axes, which are free, and which are decayed.

    Print the table before a training: it shows at a glance a kernel that is missing, a classifier
    that should be free, axes that are not a unit's, and a decay of scales.

    Args:
        params: a tree of parameters, plain or reparametrized, or of their shapes.
        layout: which leaves are kernels, and their fan-in axes.
        decayed: the mask that weight decay gets (``optax.adamw(mask=...)``): a pytree prefix of
            bools, or a function from params to one; True for every leaf, which is what optax does
            without a mask. Left out, nothing is said about decay: the optimizer is not known here.

    Returns:
        Lines of text: one a leaf, with the number of weights of a unit (``fan-in``) and of units,
        and a count of each kind.

    Raises:
        ValueError: if the layout's result does not fit params, or the mask does not reach a leaf.

    Of shapes only: nothing is computed, and sharded parameters stay where they are.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"dense": {"kernel": jnp.ones((8, 4)), "bias": jnp.ones(4)}}
        >>> print(describe(params))
        leaf          shape   fan-in axes  fan-in  units
        dense/bias    (4,)    free
        dense/kernel  (8, 4)  (-2,)        8       4
        constrained: 1 leaf, 32 weights in 4 units; free: 1 leaf, 4 weights.
    """
    rows = axes_of_leaves(layout, params)
    mask = decayed(params) if callable(decayed) else decayed
    flags = setting_per_leaf(mask, params, "decayed") if mask is not None else [None] * len(rows)
    present = [
        (path, np.shape(leaf), axes, flag if flag is None else bool(flag))
        for (path, leaf, axes), flag in zip(rows, flags, strict=True)
        if not is_absent(leaf)
    ]
    table = [row[: len(_HEADER) - (mask is None)] for row in (_HEADER, *map(_row, present))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return "\n".join([*lines, _counts(present)])


def _row(leaf: _Leaf) -> tuple[str, ...]:
    path, shape, axes, flag = leaf
    decays = "yes" if flag else "no"
    if axes is None:
        return str(path), str(shape), "free", "", "", decays
    size = math.prod(shape[axis] for axis in axes)
    return str(path), str(shape), str(axes), str(size), str(_units(shape, axes)), decays


def _units(shape: Axes, axes: Axes) -> int:
    return math.prod(size for axis, size in enumerate(shape) if axis - len(shape) not in axes)


def _counts(present: list[_Leaf]) -> str:
    kernels = [(shape, axes) for _, shape, axes, _ in present if axes is not None]
    free = [shape for _, shape, axes, _ in present if axes is None]
    units = sum(_units(shape, axes) for shape, axes in kernels)
    decayed = [flag for *_, flag in present if flag is not None]
    weights = [sum(map(math.prod, shapes)) for shapes in ([shape for shape, _ in kernels], free)]
    return (
        f"constrained: {_leaves(len(kernels))}, {weights[0]:,} weights in {units:,} units; "
        f"free: {_leaves(len(free))}, {weights[1]:,} weights"
        f"{f'; decayed: {_leaves(sum(decayed))}' if decayed else ''}."
    )


def _leaves(count: int) -> str:
    return f"{count} leaf" if count == 1 else f"{count} leaves"
