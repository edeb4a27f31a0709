"""What devices that each see rows of their own do to act as one: share a mean, not random keys."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from experiments.training._keys import is_key


def average(tree: PyTree, axis_name: str | None) -> PyTree:
    """The mean over devices of every floating-point leaf, all in one all-reduce.

    Other leaves, such as random counters, are the same on all devices already.
    """
    if axis_name is None:
        return tree

    def mean(leaf: Array) -> Array:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.lax.pmean(leaf, axis_name) if floating else leaf

    return jax.tree.map(mean, tree)


def own_keys(tree: PyTree, axis_name: str | None) -> PyTree:
    """The tree with random keys of the device's own: two devices must not drop the same units."""
    if axis_name is None:
        return tree
    index = jax.lax.axis_index(axis_name)
    return jax.tree.map(lambda x: jax.random.fold_in(x, index) if is_key(x) else x, tree)


def shared_keys(tree: PyTree, kept: PyTree, axis_name: str | None) -> PyTree:
    """The tree with the keys of ``kept``, as all devices have them; counters tell draws apart."""
    if axis_name is None:
        return tree
    return jax.tree.map(lambda x, old: old if is_key(old) else x, tree, kept)
