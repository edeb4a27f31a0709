"""The largest value of a function of kernels, and the least squared norm."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm import Layout

#: A squared norm below this counts as zero in float32.
TINY = 1e-30


def kernel_maximum(
    function: Callable[..., Array], layout: Layout, tree: PyTree, *trees: PyTree
) -> Float[Array, ""]:
    """Returns the largest value of ``function(kernel, fan_in_axes, ...)`` over all kernels."""

    def largest(kernel: Array, axes: tuple[int, ...] | None, *others: Array) -> Array | None:
        return None if axes is None else function(kernel, axes, *others).max()

    # The tree comes first, so that the layout's tuples of axes are passed whole.
    maxima = jax.tree.map(largest, tree, layout(tree), *trees)
    return jnp.stack(jax.tree.leaves(maxima)).max()
