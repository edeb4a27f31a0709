"""Trees of arrays by the /-joined paths of their leaves."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, PyTree


def by_path(tree: PyTree) -> dict[str, Array]:
    """The leaves by their paths."""
    return {_joined(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def map_by_path(function: Callable[[str, Array], Any], tree: PyTree) -> PyTree:
    """The tree of the function's values at each path and leaf."""
    return jax.tree.map_with_path(lambda path, leaf: function(_joined(path), leaf), tree)


def replaced(tree: PyTree, values: dict[str, Array]) -> PyTree:
    """The tree with the leaves at some paths replaced."""
    return map_by_path(values.get, tree)


def _joined(path: tuple[jax.tree_util.KeyEntry, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
