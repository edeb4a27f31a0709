"""Names of the leaves of a parameter tree, for regular expressions and messages."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import optax
from jaxtyping import PyTree

from jaxnorm._checks import check_patterns
from jaxnorm._node import is_node


class Path(tuple[str, ...]):
    """Keys from a tree's root to a leaf, as strings; different leaves have different paths.

    ``str(path)`` joins the keys, ``encoder/0/kernel``; regular expressions and messages use the
    joined form.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return "/".join(self)

    def __repr__(self) -> str:
        return repr(str(self))

    @property
    def name(self) -> str:
        """Last key; empty for a tree that is a single leaf."""
        return self[-1] if self else ""

    def beside(self, name: str) -> "Path":
        """Returns the path of the leaf ``name`` with the same parent."""
        return Path((*self[:-1], name))


def is_absent(x: Any) -> bool:
    """Returns True for the placeholders of a leaf: None and the MaskedNode of ``optax.masked``."""
    return x is None or isinstance(x, optax.MaskedNode)


def is_entry(x: Any) -> bool:
    """Returns True for entries of a tree that are no arrays: placeholders and whole nodes."""
    return is_absent(x) or is_node(x)


def is_box(x: Any) -> bool:
    """Returns True for an NNX Variable or a Linen box (a partitioned parameter).

    The field ``value`` of a box is no part of a path. A field ``value`` alone is no sign of one: a
    module of the user's may have such a parameter, whose name belongs to its path.
    """
    return isinstance(x, _box_types())


def _box_types() -> tuple[type, ...]:
    """Returns Flax's classes of boxes; none before somebody imports Flax, and could make one."""
    kinds = (("flax.nnx", "Variable"), ("flax.core.meta", "AxisMetadata"))
    types = (getattr(sys.modules.get(module), name, None) for module, name in kinds)
    return tuple(kind for kind in types if kind is not None)


def named_entries(
    tree: PyTree, is_leaf: Callable[[Any], bool] = is_entry
) -> list[tuple[Path, Any]]:
    """Returns every entry with its path; a node is one entry, and placeholders are included."""
    return [(Path(keys), entry) for keys, entry in _walk(tree, is_leaf)]


def named_leaves(tree: PyTree) -> list[tuple[Path, Any]]:
    """Returns every leaf with its path, placeholders included.

    The leaves of a node have the node's path and the name of their field: ``dense/kernel/scale``.
    """
    return named_entries(tree, is_absent)


def named_rows(
    tree: PyTree, *rest: PyTree, is_leaf: Callable[[Any], bool] = is_entry
) -> list[tuple[Any, ...]]:
    """Returns ``(path, entry, *values)`` for each entry, with the values of ``rest`` there."""
    structure: Any = jax.tree.structure(tree, is_leaf=is_leaf)
    columns = [structure.flatten_up_to(x) for x in rest]
    named = zip(named_entries(tree, is_leaf), *columns, strict=True)
    return [(path, entry, *values) for (path, entry), *values in named]


def map_entries(
    function: Callable[..., Any],
    tree: PyTree,
    *rest: PyTree,
    is_leaf: Callable[[Any], bool] = is_entry,
) -> PyTree:
    """Returns the tree with ``function(path, entry, *values)`` in the place of each entry."""
    values = [function(*row) for row in named_rows(tree, *rest, is_leaf=is_leaf)]
    return jax.tree.unflatten(jax.tree.structure(tree, is_leaf=is_leaf), values)


def listed(paths: Iterable[Path]) -> str:
    """Joins paths for a message."""
    return ", ".join(map(str, paths)) or "(there are none)"


def _walk(tree: PyTree, is_leaf: Callable[[Any], bool]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the leaves of a tree with their keys, without the keys into boxes."""
    flat, _ = jax.tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda x: is_leaf(x) or (is_box(x) and x is not tree)
    )
    box = is_box(tree)
    for path, entry in flat:
        into_box = box and path[:1] == (jax.tree_util.GetAttrKey("value"),)
        keys = tuple(jax.tree_util.keystr((key,), simple=True) for key in path[into_box:])
        if is_box(entry) and entry is not tree:
            yield from ((keys + inner, x) for inner, x in _walk(entry, is_leaf))
        else:
            yield keys, entry


def matching(patterns: Sequence[str], name: str, kind: str, paths: Iterable[Path]) -> set[Path]:
    """Returns the paths that regular expressions match, searched for in each.

    Raises TypeError for one string in the place of several expressions, and ValueError for an
    expression that matches none. ``name`` is the argument's, and ``kind`` says what the paths are.
    """
    check_patterns(patterns, name)
    paths = [*paths]
    matched = {each: [path for path in paths if re.search(each, str(path))] for each in patterns}
    for pattern, found in matched.items():
        if not found:
            raise ValueError(
                f"{name} has the expression {pattern!r}, which matches no {kind}. The {kind}s are: "
                f"{listed(paths)}."
            )
    return {path for found in matched.values() for path in found}
