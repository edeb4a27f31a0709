"""Table of the leaves that a layout constrains."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from jaxnorm._layout import Layout, broadcast, flax_layout, kernel_axes
from jaxnorm._node import Axes
from jaxnorm._paths import Path, is_absent, named_rows
from jaxnorm._phases import unit_count, unit_sizes

#: Mask of ``optax.add_decayed_weights``, True for all leaves, or None for a table without decay.
Mask = Any


class _Row(NamedTuple):
    """Leaf of the table; ``axes`` are None if unconstrained, ``decayed`` is None without a mask."""

    path: Path
    shape: tuple[int, ...]
    axes: Axes | None
    decayed: bool | None


_HEADER = ("leaf", "shape", "fan-in axes", "fan-in", "units", "decayed")


def describe(params: PyTree, layout: Layout = flax_layout, *, decayed: Mask = None) -> str:
    """Table of a tree's leaves: constrained or not, with axes, sizes, and weight decay.

    Print the table before a training: it shows a missing kernel, a classifier that should not be
    constrained, axes that are not those of a unit, and a decay of scales.

    Args:
        params: a tree of parameters, plain or reparametrized, or of their shapes.
        layout: which leaves are kernels, and their fan-in axes.
        decayed: the mask of the weight decay (``optax.adamw(mask=...)``), applied as optax applies
            it: a pytree prefix of bools, or a function from ``params`` to one; True for every leaf,
            which is optax's meaning of no mask. None if the table should not mention decay.

    Returns:
        Lines of text: one per leaf, with the number of weights per unit (``fan-in``) and the number
        of units, and a count of each kind. Pass the tree that the optimizer gets: a mask by rank
        has other values on reparametrized kernels than on plain ones.

    Raises:
        ValueError: if the layout's or the mask's result does not fit ``params``.

    The table depends on shapes only: nothing is computed, and sharded parameters stay in place.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"dense": {"kernel": jnp.ones((8, 4)), "bias": jnp.ones(4)}}
        >>> print(describe(params))
        leaf          shape   fan-in axes  fan-in  units
        dense/bias    (4,)    none
        dense/kernel  (8, 4)  (-2,)        8       4
        constrained: 1 leaf, 32 weights in 4 units; unconstrained: 1 leaf, 4 weights.
    """
    mask = decayed(params) if callable(decayed) else decayed
    axes = kernel_axes(layout, params, require_some=False)
    entries = named_rows(params, axes, broadcast(mask, params, "decayed"), is_leaf=is_absent)
    rows = [_Row(path, np.shape(x), *row) for path, x, *row in entries if not is_absent(x)]
    table = [cells[: len(_HEADER) - (mask is None)] for cells in (_HEADER, *map(_cells, rows))]
    return "\n".join([*aligned(table), _totals(rows)])


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Returns one line per row of a table, with cells padded to the width of their column."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in table
    ]


def _cells(row: _Row) -> tuple[str, ...]:
    decays = "yes" if row.decayed else "no"
    if row.axes is None:
        return str(row.path), str(row.shape), "none", "", "", decays
    sizes = np.unique(unit_sizes(row, row.axes))
    size = "-".join(map(str, sizes[[0, -1]] if sizes.size > 1 else sizes))
    return str(row.path), str(row.shape), str(row.axes), size, str(_units(row)), decays


def _units(row: _Row) -> int:
    return unit_count(row, row.axes or ())


def _totals(rows: list[_Row]) -> str:
    kernels = [row for row in rows if row.axes is not None]
    others = [row for row in rows if row.axes is None]
    decayed = [bool(row.decayed) for row in rows if row.decayed is not None]
    weights, other_weights = (
        sum(math.prod(row.shape) for row in part) for part in (kernels, others)
    )
    return (
        f"constrained: {_leaves(len(kernels))}, {weights:,} weights in "
        f"{sum(map(_units, kernels)):,} units; "
        f"unconstrained: {_leaves(len(others))}, {other_weights:,} weights"
        f"{f'; decayed: {_leaves(sum(decayed))}' if decayed else ''}."
    )


def _leaves(count: int) -> str:
    return f"{count} leaf" if count == 1 else f"{count} leaves"
