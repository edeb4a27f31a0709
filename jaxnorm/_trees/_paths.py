"""Transitional names."""

from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._node import is_node as is_node
from jaxnorm._paths import Path as Path
from jaxnorm._paths import is_absent as is_absent
from jaxnorm._paths import is_box as is_box
from jaxnorm._paths import is_entry as is_entry
from jaxnorm._paths import listed as listed
from jaxnorm._paths import named_entries as named_entries
from jaxnorm._paths import named_leaves as named_leaves
from jaxnorm._paths import rebuild_entries as rebuild_entries

entries = named_entries
leaves = named_leaves


def flat_leaves(tree: PyTree) -> list[Any]:
    """Returns the leaves, placeholders included."""
    return jax.tree.leaves(tree, is_leaf=is_absent)


def rebuild(tree: PyTree, values: list[Any]) -> PyTree:
    """Returns the tree with ``values`` in the place of its leaves."""
    return jax.tree.unflatten(jax.tree.structure(tree, is_leaf=is_absent), values)
