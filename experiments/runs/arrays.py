"""A training state as a flat dict of plain arrays, readable without this code.

The structure (nodes, named tuples, empty containers) is not stored: a program rebuilds it from its
settings, which are stored beside the arrays.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from experiments.training.state import is_key


def flatten(state: PyTree) -> dict[str, Array]:
    """Returns the leaves by path, such as ``params.head.kernel``; random keys as their bits."""
    leaves, _ = jax.tree.flatten_with_path(state)
    flat = {_name(path): _bits(leaf) for path, leaf in leaves}
    if len(flat) != len(leaves):
        raise ValueError(f"two leaves share a path: {sorted(_name(path) for path, _ in leaves)}")
    return flat


def unflatten(flat: dict[str, Array], like: PyTree) -> PyTree:
    """Inverts `flatten`, with the structure and the random keys' types of ``like``."""

    def leaf(path: Any, old: Array) -> Array:
        value = flat[_name(path)]
        if not is_key(old):
            return value
        return jax.random.wrap_key_data(value, impl=jax.random.key_impl(old))

    return jax.tree.map_with_path(leaf, like)


def abstract(state: PyTree) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes, types and shardings of the arrays to restore."""
    return {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        for name, leaf in flatten(state).items()
    }


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _bits(leaf: Array) -> Array:
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def checksums(flat: dict[str, Array]) -> dict[str, int]:
    """Returns a checksum per array, which any flipped bit changes, whatever the sharding."""
    return {name: int(value) for name, value in _checksums(flat).items()}


@jax.jit
def _checksums(flat: dict[str, Array]) -> dict[str, Array]:
    return {name: _checksum(leaf) for name, leaf in flat.items()}


def _checksum(leaf: Array) -> Array:
    """Returns the sum of the words, each times its own odd number, modulo 2^32."""
    words = _words(leaf)
    place = jnp.zeros(words.shape, jnp.uint32)
    for axis, size in enumerate(words.shape):
        place = place * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
    return (words * (2 * place + 1)).sum(dtype=jnp.uint32)


def _words(leaf: Array) -> Array:
    """Returns the bits, at most 32 per word; wider numbers are two words."""
    numbers = leaf.astype(jnp.uint8) if leaf.dtype == jnp.bool_ else leaf
    width = 8 * min(numbers.dtype.itemsize, 4)
    return jax.lax.bitcast_convert_type(numbers, f"uint{width}").astype(jnp.uint32)
