"""The names of leaves: ``/``-joined paths that are the same in every kind of parameter tree."""

from typing import Any

import jax
import optax
from jaxtyping import PyTree

from jaxnorm._node import Reparametrization


def is_absent(x: Any) -> bool:
    """Whether ``x`` only holds the place of a leaf: None, or what ``optax.masked`` puts there."""
    return x is None or isinstance(x, optax.MaskedNode)


def is_node(x: Any) -> bool:
    """Whether ``x`` is a reparametrized kernel."""
    return isinstance(x, Reparametrization)


def is_entry(x: Any) -> bool:
    """Whether ``x`` is to be seen as one entry of a parameter tree, whatever is inside it."""
    return is_absent(x) or is_node(x)


def join(path: tuple[Any, ...]) -> str:
    """``encoder/0/kernel``, whether by dict, list or attribute.

    A trailing ``.value`` is left out: it is the box of an NNX Variable or of a Linen partitioned
    parameter, not a name.
    """
    if path and path[-1] == jax.tree_util.GetAttrKey("value"):
        path = path[:-1]
    return jax.tree_util.keystr(path, simple=True, separator="/")


def entries(tree: PyTree) -> list[tuple[str, Any]]:
    """Every entry of ``tree`` with its path; arrays, absent leaves, and nodes as one entry each."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_entry)
    return [(join(path), entry) for path, entry in flat]


def leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """Every leaf of ``tree`` with its path, absent ones included; nodes are opened.

    A node's leaves are named by the node's path and their field: ``dense/kernel/scale``.
    """
    return [leaf for path, entry in entries(tree) for leaf in _open(path, entry)]


def flat_leaves(tree: PyTree) -> list[Any]:
    """The leaves of ``tree``, absent ones included, in the order of `leaves`."""
    return jax.tree.leaves(tree, is_leaf=is_absent)


def rebuild(tree: PyTree, values: list[Any]) -> PyTree:
    """``tree`` with ``values`` in the place of its leaves, absent ones included."""
    return jax.tree.unflatten(jax.tree.structure(tree, is_leaf=is_absent), values)


def rebuild_entries(tree: PyTree, values: list[Any]) -> PyTree:
    """``tree`` with ``values`` in the place of its entries."""
    return jax.tree.unflatten(jax.tree.structure(tree, is_leaf=is_entry), values)


def _open(path: str, entry: Any) -> list[tuple[str, Any]]:
    """The leaves of one entry: itself, or those of a node."""
    if not is_node(entry):
        return [(path, entry)]
    flat, _ = jax.tree_util.tree_flatten_with_path(entry, is_leaf=is_absent)
    return [(f"{path}/{join(inner)}", leaf) for inner, leaf in flat]
