"""The largest number of a function of kernels, and the least squared norm."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm import Layout

#: Below this a squared norm is zero for all that float32 knows.
TINY = 1e-30


def largest_of_kernels(
    function: Callable[..., Array], layout: Layout, tree: PyTree, *rest: PyTree
) -> Float[Array, ""]:
    """The largest number in ``function(kernel, fan_in_axes, ...)``; see `jaxnorm.map_kernels`."""

    def largest(kernel: Array, axes: tuple[int, ...] | None, *others: Array) -> Array | None:
        return None if axes is None else function(kernel, axes, *others).max()

    # The tree comes first: its leaves say where axes are whole.
    found = jax.tree.map(largest, tree, layout(tree), *rest)
    return jnp.stack(jax.tree.leaves(found)).max()
