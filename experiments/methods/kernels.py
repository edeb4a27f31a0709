"""Functions of one kernel's arrays, mapped over the kernels of a tree."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, PyTree

from jaxnorm import Layout

#: Below this a squared norm is zero for all that float32 knows.
TINY = 1e-30


def is_axes(entry: Any) -> bool:
    """Whether an entry of a layout's result says what a leaf is: axes, or None for no kernel."""
    return entry is None or isinstance(entry, tuple)


def map_kernels(
    function: Callable[..., Array], layout: Layout, tree: PyTree, *rest: PyTree
) -> PyTree:
    """The tree with ``function(axes, leaf, ...)`` in the place of each kernel.

    Args:
        function: of the kernel's fan-in axes and its leaf in each tree.
        layout: which leaves are kernels.
        tree: of the parameters' structure; its other leaves stay as they are.
        *rest: of the same structure.
    """

    def mapped(axes: tuple[int, ...] | None, leaf: Array, *others: Array) -> Array:
        return leaf if axes is None else function(axes, leaf, *others)

    return jax.tree.map(mapped, layout(tree), tree, *rest, is_leaf=is_axes)
