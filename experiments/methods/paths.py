"""Trees of arrays by the /-joined paths of their leaves."""

from typing import Any

import jax
from jaxtyping import Array, PyTree


def by_path(tree: PyTree) -> dict[str, Any]:
    """Returns the leaves by path."""
    return {_joined(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def replaced(tree: PyTree, values: dict[str, Array]) -> PyTree:
    """Replaces the leaves at some paths."""
    return jax.tree.map_with_path(lambda path, leaf: values.get(_joined(path), leaf), tree)


def _joined(path: tuple[jax.tree_util.KeyEntry, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
