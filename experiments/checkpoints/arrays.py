"""A state as a flat dict of plain arrays, which any version of anything can read.

The structure (nodes, named tuples, empty containers) is not stored: a program makes it anew from
its settings, which are stored beside the arrays.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from experiments.training.state import is_key


def flatten(state: PyTree) -> dict[str, Array]:
    """The leaves by their path, such as ``params.head.kernel``; random keys as their bits."""
    leaves, _ = jax.tree.flatten_with_path(state)
    flat = {_name(path): _bits(leaf) for path, leaf in leaves}
    if len(flat) != len(leaves):
        raise ValueError(f"two leaves share a path: {sorted(_name(path) for path, _ in leaves)}")
    return flat


def unflatten(flat: dict[str, Array], like: PyTree) -> PyTree:
    """The inverse of `flatten`, with the structure and the random keys' types of ``like``."""

    def leaf(path: Any, old: Array) -> Array:
        value = flat[_name(path)]
        if not is_key(old):
            return value
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(old))

    return jax.tree.map_with_path(leaf, like)


def abstract(state: PyTree) -> dict[str, jax.ShapeDtypeStruct]:
    """What is to be restored: shapes, types, and on which devices each part goes."""
    return {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        for name, leaf in flatten(state).items()
    }


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _bits(leaf: Array) -> Array:
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def checksums(flat: dict[str, Array]) -> dict[str, int]:
    """A number for each array, which any flipped bit changes, on whatever devices it lies."""
    return {name: int(value) for name, value in _checksums(flat).items()}


@jax.jit
def _checksums(flat: dict[str, Array]) -> dict[str, Array]:
    return {name: _checksum(leaf) for name, leaf in flat.items()}


def _checksum(leaf: Array) -> Array:
    """The sum of its words, each times an odd number of its own, modulo 2^32."""
    words = _words(leaf)
    place = jnp.zeros(words.shape, jnp.uint32)
    for axis, size in enumerate(words.shape):
        place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
    return (words * (2 * place + 1)).sum(dtype=jnp.uint32)


def _words(leaf: Array) -> Array:
    """Its bits, 32 or fewer in each word; wider numbers are two words."""
    numbers = leaf.astype(jnp.uint8) if leaf.dtype == jnp.bool_ else leaf
    width = 8 * min(numbers.dtype.itemsize, 4)
    return jax.lax.bitcast_convert_type(numbers, f"uint{width}").astype(jnp.uint32)
