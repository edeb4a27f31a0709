"""Plain parameters to raw ones and back: wrapping kernels, making them effective, counting."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._trees._constrained import constrained_leaves
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._node import NODE_TYPES, Axes, Reparametrization, count_of, kernel_of
from jaxnorm._trees._paths import Path, entries, flat_leaves, is_node, rebuild_entries

#: ``(path, kernel, fan_in_axes) -> node``; returning the kernel leaves it plain.
MakeNode = Callable[[str, Any, Axes], Any]


def effective(tree: PyTree) -> PyTree:
    """Replaces every reparametrization node by the kernel that it stands for.

    Call it once at the top of the loss, outside any scan: gradients then flow to the raw leaves,
    which is all the optimizer sees. The same call exports plain weights for inference.

    Args:
        tree: a tree of parameters; nodes of different kinds may mix, and nest.

    Returns:
        The tree with a plain array at each node's place and everything else as it was. Idempotent.

    Raises:
        TypeError: for a dict named ``kernel`` or ``weight`` with the fields of a node, which is
            what a checkpoint library makes of a node that it restores without a target.

    O(parameters) work, no collective under data parallelism; works under jit, vmap, pmap and
    shard_map.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import Scaled
        >>> node = Scaled(jnp.ones((3, 1)), jnp.array([2.0]), (-2,))
        >>> effective({"dense": {"kernel": node}})["dense"]["kernel"].tolist()
        [[2.0], [2.0], [2.0]]
    """
    _check_restored(tree)
    return jax.tree.map(kernel_of, tree, is_leaf=is_node)


def _field_names() -> list[set[str]]:
    return [
        {field.name for field in dataclasses.fields(kind) if not field.metadata.get("static")}
        for kind in NODE_TYPES
    ]


def _check_restored(tree: PyTree) -> None:
    """Raises for nodes that have become dicts."""
    fields: dict[Path, set[str]] = {}
    for path, _ in entries(tree):
        fields.setdefault(Path(path[:-1]), set()).add(path.name)
    for parent, names in fields.items():
        if parent.name in ("kernel", "weight") and names in _field_names():
            raise TypeError(
                f"{parent!r} is a dict with the fields {sorted(names)} of a reparametrized kernel: "
                "a checkpoint restored without a target. Restore it with one, the raw parameters "
                "that the training began with (or their shapes)."
            )


def reparametrize(
    params: PyTree, into: type[Reparametrization] | MakeNode, layout: Layout = flax_layout
) -> PyTree:
    """Wraps every kernel in a reparametrization, keeping its value wherever the set allows.

    Args:
        params: a tree of parameters. A kernel that is a node already is wrapped as one, so that
            nodes nest: `Scaled` around linearly constrained weights.
        into: a class, whose ``from_kernel(kernel, fan_in_axes)`` is called, or a callable
            ``(path, kernel, fan_in_axes) -> node`` that decides kernel by kernel, and may return
            the kernel as it is (the classifier's, say).
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        The tree with a node at each kernel's place. Also works under ``jax.eval_shape`` and vmap.

    Raises:
        ValueError: if the layout constrains nothing.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import Scaled, effective
        >>> params = {"dense": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)}}
        >>> raw = reparametrize(params, Scaled)
        >>> raw["dense"]["kernel"].scale.tolist()
        [1.0, 1.0]
    """
    axes = iter(constrained_leaves(layout, params))
    wrapped = [
        _wrap(into, path, entry, _own_axes(entry, [next(axes)[2] for _ in flat_leaves(entry)]))
        for path, entry in entries(params)
    ]
    return rebuild_entries(params, wrapped)


def _wrap(into: Any, path: Path, entry: Any, axes: Axes | None) -> Any:
    if axes is None:
        return entry
    is_class = isinstance(into, type)
    return into.from_kernel(entry, axes) if is_class else into(str(path), entry, axes)


def _own_axes(entry: Any, axes: list[Axes | None]) -> Axes | None:
    """The fan-in axes to wrap ``entry`` with, or None; ``axes`` are those of its leaves."""
    constrained = [a for a in axes if a is not None]
    if not constrained:
        return None
    return entry.fan_in_axes if is_node(entry) else constrained[0]


def parameter_count(params: PyTree) -> int:
    """The number of free parameters in a tree; pinned coordinates do not count.

    Args:
        params: a tree of parameters, or of their shapes.

    Returns:
        The sum of the leaves' sizes; a linearly constrained unit of m weights counts as m - 1.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import LinearlyConstrained
        >>> node = LinearlyConstrained.from_kernel(jnp.ones((4, 2)), -2)
        >>> parameter_count({"kernel": node, "bias": jnp.ones(2)})
        8
    """
    return sum(count_of(entry) for _, entry in entries(params))
