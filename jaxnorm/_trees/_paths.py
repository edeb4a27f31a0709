"""The names of leaves: paths of keys that are the same in every kind of parameter tree."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import optax
from jaxtyping import PyTree

from jaxnorm._trees._node import Reparametrization


class Path(tuple[str, ...]):
    """The keys from a tree's root to a leaf, as strings: two leaves never share one.

    It prints as they are joined, ``encoder/0/kernel``, which is what regular expressions see and
    messages say; there a key with a ``/`` in it looks like two.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return "/".join(self)

    def __repr__(self) -> str:
        return repr(str(self))

    @property
    def name(self) -> str:
        """The last key; empty for a tree that is a leaf itself."""
        return self[-1] if self else ""

    def beside(self, name: str) -> "Path":
        """The path of another leaf of the same parent."""
        return Path((*self[:-1], name))


def is_absent(x: Any) -> bool:
    """Whether ``x`` only holds the place of a leaf: None, or what ``optax.masked`` puts there."""
    return x is None or isinstance(x, optax.MaskedNode)


def is_node(x: Any) -> bool:
    """Whether ``x`` is a reparametrized kernel."""
    return isinstance(x, Reparametrization)


def is_entry(x: Any) -> bool:
    """Whether ``x`` is to be seen as one entry of a parameter tree, whatever is inside it."""
    return is_absent(x) or is_node(x)


def is_box(x: Any) -> bool:
    """Whether ``x`` is an NNX Variable or a box of Linen's (a partitioned parameter), by its name.

    Their field ``value`` is no part of a path; anybody else's is. Flax is not imported for it.
    """
    return any(
        kind.__name__ in ("Variable", "VariableState", "AxisMetadata")
        and kind.__module__.partition(".")[0] == "flax"
        for kind in type(x).__mro__
    )


def entries(tree: PyTree, is_leaf: Callable[[Any], bool] = is_entry) -> list[tuple[Path, Any]]:
    """Every entry of ``tree`` with its path; arrays, absent leaves, and nodes as one entry each."""
    return [(Path(keys), entry) for keys, entry in _walk(tree, is_leaf)]


def listed(paths: Iterable[Path]) -> str:
    """The joined paths one after the other, for messages."""
    return ", ".join(map(str, paths))


def leaves(tree: PyTree) -> list[tuple[Path, Any]]:
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


def _open(path: Path, entry: Any) -> list[tuple[Path, Any]]:
    """The leaves of one entry: itself, or those of a node."""
    if not is_node(entry):
        return [(path, entry)]
    return [(Path((*path, *inner)), leaf) for inner, leaf in _walk(entry, is_absent)]


def _walk(tree: PyTree, is_leaf: Callable[[Any], bool]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The leaves of ``tree`` with the keys to them, those into boxes left out."""
    flat, _ = jax.tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda x: is_leaf(x) or (is_box(x) and x is not tree)
    )
    for path, entry in flat:
        in_box = is_box(tree) and path[:1] == (jax.tree_util.GetAttrKey("value"),)
        kept = path[1:] if in_box else path
        keys = tuple(jax.tree_util.keystr((key,), simple=True) for key in kept)
        if is_box(entry) and entry is not tree:
            yield from ((keys + inner, x) for inner, x in _walk(entry, is_leaf))
        else:
            yield keys, entry
