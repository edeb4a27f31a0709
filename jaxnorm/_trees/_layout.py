"""Which leaves are kernels, and which of their axes are fan-in.

A *layout* is a callable that takes a parameter tree and returns a tree of the same structure with,
at each constrained leaf, its fan-in axes as a tuple of negative ints, and None at every other leaf.
A reparametrization node counts as one leaf at the kernel's path; inside it the node's own axes hold
for the fields that are shaped as the kernel is. A leaf that ``optax.masked`` took away, or a None,
keeps its place: it is a MaskedNode in the layout's result if its path is a kernel's.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import optax
from jaxtyping import PyTree

from jaxnorm._trees._axes import negative_axes
from jaxnorm._trees._doubts import Doubt, doubt_flax, doubt_torch, warn
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import (
    Path,
    entries,
    flat_leaves,
    is_absent,
    is_node,
    listed,
    rebuild,
    rebuild_entries,
)

#: ``params -> tree of axes``.
Layout = Callable[[PyTree], PyTree]

Rules = list[tuple[re.Pattern[str], int | Iterable[int] | None]]

#: ``(path, entry) -> fan-in axes``, or None for what is no kernel. Also asked of absent leaves.
Select = Callable[[Path, Any], Axes | None]


def flax_layout(params: PyTree) -> PyTree:
    """The layout of Flax kernels: leaves named ``kernel``, all axes but the last.

    Leaves of fewer than two axes are no kernels. The layout is right for (in, out) and for
    convolutions of any rank (H, W, in, out), grouped and depthwise ones included, since their
    ``in`` is already per group. It works on ``nnx.state(model)``, inside ``nnx.Optimizer``, on pure
    dicts and on Linen's trees alike. Kernels of more axes need `traced_layout`,
    `jaxnorm.nnx.layout` or `layout_from_rules`: stacked ones (``nn.scan``), attention projections
    (in, heads, head size), and convolutions with ``transpose_kernel``.

    Args:
        params: a tree of arrays, or of their shapes.

    Returns:
        A tree of the same structure: a tuple of negative axes at each kernel, None elsewhere.

    Warns:
        UserWarning: once a leaf, where a name, the number of axes or the shape of the bias beside
            it says that the rule is wrong there: the kernels above, and LoRA factors.

    Example:
        >>> import jax.numpy as jnp
        >>> flax_layout({"conv": {"kernel": jnp.ones((3, 3, 8, 16)), "bias": jnp.ones(16)}})
        {'conv': {'bias': None, 'kernel': (-4, -3, -2)}}
    """
    return _by_name("kernel", -1, doubt_flax)(params)


def torch_layout(params: PyTree) -> PyTree:
    """The layout of Equinox and PyTorch: leaves named ``weight``, all axes but the first.

    Args:
        params: a tree of arrays, or of their shapes.

    Returns:
        A tree of the same structure: a tuple of negative axes at each kernel, None elsewhere.

    Warns:
        UserWarning: once a leaf, where a name, the number of axes or the shape of the bias beside
            it says that the rule is wrong there: embeddings, a normalization's scale of two axes or
            more, stacked layers, PyTorch's transposed convolutions; recurrent cells
            (``weight_ih``) and LoRA factors, which it leaves free.

    Example:
        >>> import jax.numpy as jnp
        >>> torch_layout({"weight": jnp.ones((16, 8, 3, 3)), "bias": jnp.ones(16)})
        {'bias': None, 'weight': (-3, -2, -1)}
    """
    return _by_name("weight", 0, doubt_torch)(params)


def layout_from_rules(rules: Sequence[tuple[str, int | Iterable[int] | None]]) -> Layout:
    r"""A layout from ``(regular expression, fan-in axes or None)`` pairs; the first match wins.

    Args:
        rules: expressions are searched for in the ``/``-joined path of each leaf (anchor them with
            ``^`` and ``$``); axes may be positive and are kept as negative ones. Leaves that no
            rule matches are left alone. At a reparametrized kernel the node's own axes hold, and a
            rule only says whether it is constrained.

    Returns:
        A layout. Calling it raises ValueError if a rule matches no path at all (the message lists
        the paths there are), or if a leaf lacks the axes that its rule names.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"head": {"kernel": jnp.ones((8, 2))}, "qkv": {"kernel": jnp.ones((8, 4, 2))}}
        >>> layout_from_rules([("head", None), ("qkv/kernel$", 0)])(params)
        {'head': {'kernel': None}, 'qkv': {'kernel': (-3,)}}
    """
    compiled = [(re.compile(pattern), axes) for pattern, axes in rules]

    def layout(params: PyTree) -> PyTree:
        _check_rules(compiled, params)
        return layout_by(lambda path, entry: _first_match(compiled, path, entry))(params)

    return layout


def exclude(*patterns: str, layout: Layout = flax_layout) -> Layout:
    """The same layout without the leaves whose path matches one of the regular expressions.

    Args:
        *patterns: expressions that are searched for in the ``/``-joined paths, the classifier's
            ``"^head/"`` for example.
        layout: the layout to take them out of.

    Returns:
        A layout. Calling it raises ValueError if an expression matches no path at all.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"head": {"kernel": jnp.ones((8, 2))}, "body": {"kernel": jnp.ones((8, 4))}}
        >>> exclude("^head/")(params)
        {'body': {'kernel': (-2,)}, 'head': {'kernel': None}}
    """
    rules: Rules = [(re.compile(pattern), None) for pattern in patterns]

    def without(params: PyTree) -> PyTree:
        _check_rules(rules, params)
        named = [
            (entry, any(pattern.search(str(path)) for pattern, _ in rules))
            for path, entry in entries(params)
        ]
        # An excluded leaf is taken away, so that no layout by names warns of it.
        seen = [None if hide and not is_node(entry) else entry for entry, hide in named]
        axes = jax.tree.leaves(layout(rebuild_entries(params, seen)), is_leaf=is_axes)
        # A node is one entry, named by its kernel: what is said of it holds for all its leaves.
        hidden = [hide for entry, hide in named for _ in flat_leaves(entry)]
        kept = [None if hide else own for hide, own in zip(hidden, axes, strict=True)]
        return rebuild(params, kept)

    return without


def is_axes(x: Any) -> bool:
    """Whether ``x`` is what a layout holds at one leaf."""
    is_tuple_of_ints = isinstance(x, tuple) and bool(x) and all(isinstance(a, int) for a in x)
    return x is None or isinstance(x, optax.MaskedNode) or is_tuple_of_ints


def layout_by(select: Select, doubt: Doubt | None = None) -> Layout:
    """The layout that asks ``select(path, entry)`` for the axes of each array or node."""

    def layout(params: PyTree) -> PyTree:
        named = entries(params)
        if doubt is not None:
            warn(named, doubt)
        axes = [_spell_out(entry, select(path, entry)) for path, entry in named]
        return rebuild_entries(params, axes)

    return layout


def _by_name(name: str, unit_axis: int, doubt: Doubt) -> Layout:
    """Of the leaves of this name, all axes but one."""

    def select(path: Path, entry: Any) -> Axes | None:
        return _all_but(unit_axis, entry) if path.name == name else None

    return layout_by(select, doubt)


def _spell_out(entry: Any, axes: Axes | None) -> Any:
    """What a layout holds at one entry, inside nodes too."""
    if is_node(entry):
        return entry.with_axes(matched=axes is not None)
    if is_absent(entry):
        return None if axes is None else optax.MaskedNode()
    return axes


def _all_but(unit_axis: int, entry: Any) -> Axes | None:
    """All axes but one; () for a node or an absent leaf, whose axes are not asked for."""
    if is_absent(entry) or is_node(entry):
        return ()
    if entry.ndim < 2:
        return None
    unit = unit_axis % entry.ndim - entry.ndim
    return tuple(axis for axis in range(-entry.ndim, 0) if axis != unit)


def _first_match(rules: Rules, path: Path, entry: Any) -> Axes | None:
    axes = next((axes for pattern, axes in rules if pattern.search(str(path))), None)
    if axes is None or is_absent(entry) or is_node(entry):
        return None if axes is None else ()
    return negative_axes(axes, entry.ndim, f"the leaf {path!r} of shape {tuple(entry.shape)}")


def _check_rules(rules: Rules, params: PyTree) -> None:
    """Raises for a rule that matches nothing, unless what it names may be masked away."""
    named = entries(params)
    if any(isinstance(entry, optax.MaskedNode) for _, entry in named):
        return
    paths = [path for path, _ in named]
    for pattern, _ in rules:
        if not any(pattern.search(str(path)) for path in paths):
            raise ValueError(
                f"the layout rule {pattern.pattern!r} matches no parameter. The paths are: "
                f"{listed(paths)}. Mend the expression, or drop the rule."
            )
