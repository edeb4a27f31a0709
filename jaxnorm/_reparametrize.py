"""Raw parameters and effective weights: wrapping kernels in nodes, and computing them."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm._layout import Layout, flax_layout, kernel_axes
from jaxnorm._node import (
    NODE_TYPES,
    Axes,
    Reparametrization,
    array_fields,
    count_parameters,
    effective_kernel,
    is_node,
)
from jaxnorm._paths import Path, is_absent, named_entries

#: ``(path, kernel, fan_in_axes) -> node``; a kernel that is returned unchanged stays plain.
MakeNode = Callable[[str, Any, Axes], Any]


def effective(tree: PyTree) -> PyTree:
    """Replaces every reparametrization node by its kernel.

    Call it once at the top of the loss, outside any scan: gradients then flow to the raw leaves,
    which are all that the optimizer sees. The same call exports plain weights for inference.

    Args:
        tree: a tree of parameters; nodes of different kinds may mix, and nest.

    Returns:
        The tree with a plain array in the place of each node and every other leaf unchanged.
        Idempotent.

    Raises:
        TypeError: for a dict named ``kernel`` or ``weight`` with the fields of a node, which a
            checkpoint library makes of a node that it restores without a target.

    O(parameters) work, and no collective under data parallelism; the result is the same under jit,
    vmap, pmap and shard_map.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxnorm import Scaled
        >>> node = Scaled(jnp.ones((3, 1)), jnp.array([2.0]), (-2,))
        >>> effective({"dense": {"kernel": node}})["dense"]["kernel"].tolist()
        [[2.0], [2.0], [2.0]]
    """
    _refuse_dicts_of_nodes(tree)
    return jax.tree.map(effective_kernel, tree, is_leaf=is_node)


def _refuse_dicts_of_nodes(tree: PyTree) -> None:
    """Raises for dicts of a node's fields, below the node's kind if Flax wrote them."""
    fields: dict[Path, set[str]] = {}
    for path, _ in named_entries(tree):
        fields.setdefault(Path(path[:-1]), set()).add(path.name)
    kinds = {kind.__name__ for kind in NODE_TYPES}
    for parent, names in fields.items():
        of_flax = parent.name.partition("(")[0] in kinds
        of_orbax = parent.name in ("kernel", "weight") and names in map(_keys, NODE_TYPES)
        if of_flax or of_orbax:
            raise TypeError(
                f"{parent!r} is a dict with the fields {sorted(names)} of a reparametrized kernel: "
                "a checkpoint restored without a target. Restore it with one, the raw parameters "
                "that the training began with (or their shapes)."
            )


def _keys(kind: Any) -> set[str]:
    """Returns the keys of a kind of node in paths and checkpoints."""
    return {kind.key_names.get(name, name) for name in array_fields(kind)}


def reparametrize(
    params: PyTree, into: type[Reparametrization] | MakeNode, layout: Layout = flax_layout
) -> PyTree:
    """Wraps every kernel in a reparametrization that keeps its value if the set allows.

    Args:
        params: a tree of parameters. A kernel that is a node already is wrapped as one, so that
            nodes nest: `Scaled` around linearly constrained weights.
        into: a class, whose ``from_kernel(kernel, fan_in_axes)`` is called, or a callable
            ``(path, kernel, fan_in_axes) -> node`` that decides for each kernel, and may return
            the kernel unchanged (the classifier's, say).
        layout: which leaves are kernels, and their fan-in axes.

    Returns:
        The tree with a node in the place of each kernel. ``jax.eval_shape`` and vmap of the call
        work too.

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
    make: Any = getattr(into, "from_kernel", None)

    def wrap(path: Path, entry: Any, axes: Any) -> Any:
        fan_in_axes = _axes_of_entry(entry, axes)
        if fan_in_axes is None:
            return entry
        if make:
            return make(entry, fan_in_axes)
        return into(str(path), entry, fan_in_axes)  # type: ignore[call-arg]

    structure: Any = jax.tree.structure(params, is_leaf=is_node)
    columns = structure.flatten_up_to(kernel_axes(layout, params))
    entries = [(path, entry) for path, entry in named_entries(params) if not is_absent(entry)]
    wrapped = [wrap(*entry, axes) for entry, axes in zip(entries, columns, strict=True)]
    return jax.tree.unflatten(structure, wrapped)


def _axes_of_entry(entry: Any, axes: Any) -> Axes | None:
    """Returns the axes to wrap an entry with; those of a node are its own."""
    if not is_node(entry):
        return axes  # type: ignore[no-any-return]
    return entry.fan_in_axes if jax.tree.leaves(axes) else None


def parameter_count(params: PyTree) -> int:
    """Counts the free parameters of a tree, without pinned coordinates.

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
    return sum(count_parameters(entry) for _, entry in named_entries(params))
