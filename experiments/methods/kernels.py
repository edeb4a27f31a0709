"""Functions of one kernel's arrays, mapped over the kernels of a tree."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm import Layout

#: Below this a squared norm is zero for all that float32 knows.
TINY = 1e-30


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

    def mapped(leaf: Array, axes: tuple[int, ...] | None, *others: Array) -> Array:
        return leaf if axes is None else function(axes, leaf, *others)

    # The tree comes first: its leaves say where axes are whole.
    return jax.tree.map(mapped, tree, layout(tree), *rest)


def largest_of_kernels(
    function: Callable[..., Array], layout: Layout, tree: PyTree, *rest: PyTree
) -> Float[Array, ""]:
    """The largest number in ``function(axes, leaf, ...)`` of any kernel; see `map_kernels`."""

    def largest(leaf: Array, axes: tuple[int, ...] | None, *others: Array) -> Array | None:
        return None if axes is None else function(axes, leaf, *others).max()

    found = jax.tree.map(largest, tree, layout(tree), *rest)
    return jnp.stack(jax.tree.leaves(found)).max()
