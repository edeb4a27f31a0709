"""Plain parameters -> raw parameters: wraps the kernels of a tree."""

from collections.abc import Callable
from typing import Any

from jaxtyping import PyTree

from jaxnorm._trees._constrained import constrained_leaves
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._node import Axes, Reparametrization
from jaxnorm._trees._paths import Path, entries, flat_leaves, is_node, rebuild_entries

#: ``(path, kernel, fan_in_axes) -> node``; returning the kernel leaves it plain.
MakeNode = Callable[[str, Any, Axes], Any]


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
    if not callable(into):
        raise TypeError(
            f"into is {into!r}; wanted a class such as jaxnorm.Scaled, or a callable (path, "
            "kernel, fan_in_axes) -> node."
        )
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
    node = into.from_kernel(entry, axes) if is_class else into(str(path), entry, axes)
    if node is None:
        raise TypeError(
            f"into returned None for the kernel {path!r}; wanted a node, or the kernel itself to "
            "leave it plain: mind the return."
        )
    return node


def _own_axes(entry: Any, axes: list[Axes | None]) -> Axes | None:
    """The fan-in axes to wrap ``entry`` with, or None; ``axes`` are those of its leaves."""
    constrained = [a for a in axes if a is not None]
    if not constrained:
        return None
    return entry.fan_in_axes if is_node(entry) else constrained[0]
