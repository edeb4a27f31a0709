"""Layouts: which leaves of a tree are kernels, and which of their axes are fan-in.

A *layout* is a callable that takes a parameter tree and returns a tree of the same structure: a
tuple of negative axes, the fan-in axes, at each constrained leaf, and None at every other leaf. A
reparametrization node counts as one leaf at its kernel's path; inside the node the node's own axes
hold for the fields that have the kernel's shape. Placeholders (None, the MaskedNode of
``optax.masked``) stay what they are.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import optax
from jaxtyping import PyTree

from jaxnorm._axes import negative_axes
from jaxnorm._layout_warnings import (
    is_doubtful_in_flax,
    is_doubtful_in_torch,
    warn_if_doubtful,
)
from jaxnorm._node import Axes, Reparametrization, is_node
from jaxnorm._paths import (
    Path,
    is_absent,
    listed,
    map_entries,
    named_entries,
    named_rows,
)

#: ``params -> tree of axes``.
Layout = Callable[[PyTree], PyTree]

#: A number or None for all parameters, or a pytree prefix of the parameters.
Setting = Any

#: ``(path, entry) -> fan-in axes``, or None for a free entry. A node has its own axes: `OWN_AXES`.
Select = Callable[[Path, Any], Axes | None]

#: Stands for the axes of a constrained node.
OWN_AXES: Axes = ()


def map_kernels(
    function: Callable[..., Any], layout: Layout, tree: PyTree, *rest: PyTree
) -> PyTree:
    """Applies ``function(kernel, fan_in_axes, *values)`` to each constrained kernel of a tree.

    Everything here that works on kernels is written with it, and so can your own constraint::

        def normalized(kernel, axes):
            return kernel / jnp.sqrt((kernel**2).sum(axes, keepdims=True))


        params = map_kernels(normalized, flax_layout, params)

    Args:
        function: a function of one kernel, its fan-in axes (a tuple of negative ints) and the
            values that ``rest`` has at the kernel. Of a reparametrization node it gets the fields
            that have the kernel's shape.
        layout: which leaves are kernels, and their fan-in axes.
        tree: parameters, updates or gradients.
        *rest: trees of the same structure, as `jax.tree.map` takes them.

    Returns:
        The tree with the results at the kernels, and every other leaf unchanged.

    Raises:
        ValueError: if the layout returns a tree of another structure, axes that a leaf does not
            have, or constrains no leaf. An error that ``function`` raises names the kernel's path
            in a note.

    It works wherever ``function`` does: under jit, vmap, pmap and shard_map.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.array([[1.0, 2.0], [3.0, 6.0]]), "bias": jnp.ones(2)}
        >>> means = map_kernels(lambda kernel, axes: kernel.mean(axes), flax_layout, params)
        >>> means["kernel"].tolist(), means["bias"].tolist()
        ([2.0, 4.0], [1.0, 1.0])
    """
    return map_with_axes(function, kernel_axes(layout, tree), tree, *rest)


def map_with_axes(
    function: Callable[..., Any], axes: PyTree, tree: PyTree, *rest: PyTree
) -> PyTree:
    """Does the work of `map_kernels` for axes that `kernel_axes` returned."""

    def at_leaf(path: Path, leaf: Any, axes: Axes | None, *values: Any) -> Any:
        if is_absent(axes):
            return leaf
        try:
            return function(leaf, axes, *values)
        except (TypeError, ValueError) as error:
            error.add_note(f"The error was raised for the kernel {path!r} of shape {leaf.shape}.")
            raise

    return map_entries(at_leaf, tree, axes, *rest, is_leaf=is_absent)


def kernel_axes(layout: Layout, tree: PyTree, require_some: bool = True) -> PyTree:
    """Returns the layout of a tree, checked: its structure, and the axes of each leaf.

    Raises ValueError for a layout that constrains nothing if ``require_some``, unless a mask has
    taken leaves away.
    """
    if not callable(layout):
        raise TypeError(
            f"the layout is a {type(layout).__name__}; wanted a function of the parameters, such "
            "as flax_layout, traced_layout(read(apply, params, *inputs)), or lambda params: axes "
            "for a tree of axes, and arguments in the order of the documentation."
        )
    result = layout(tree)
    try:
        jax.tree.map(lambda *_: None, tree, result, is_leaf=is_absent)
    except ValueError as error:
        raise ValueError(
            "the layout returned a tree of another structure than the parameters: "
            f"{_in_line(error, 'tree_map tree', 'params')}"
        ) from error
    rows = named_rows(tree, result, is_leaf=is_absent)
    checked = [_checked_axes(*row) for row in rows]
    masked = any(isinstance(leaf, optax.MaskedNode) for _, leaf, _ in rows)
    if require_some and not masked and all(map(is_absent, checked)):
        raise ValueError(
            "the layout constrains no parameter, so this would do nothing. The paths are: "
            f"{listed(path for path, *_ in rows)}. Pass a layout that knows these names: "
            "layout_from_rules([(regex, axes), ...]), torch_layout, or traced_layout(read(apply, "
            "params, *inputs)), which needs no names."
        )
    return jax.tree.unflatten(jax.tree.structure(tree, is_leaf=is_absent), checked)


def _in_line(error: Exception, tree: str, name: str) -> str:
    """Returns the message of an error of ``jax.tree`` in one line, with a tree's name here."""
    return " ".join(str(error).split()).replace(tree, name)


def kernel_rows(tree: PyTree, axes: PyTree, *rest: PyTree) -> list[tuple[Any, ...]]:
    """Returns ``(path, kernel, fan_in_axes, *values)`` for each constrained kernel, in order."""
    rows = named_rows(tree, axes, *rest, is_leaf=is_absent)
    return [row for row in rows if not is_absent(row[2])]


def kernels_by_path(layout: Layout, tree: PyTree) -> dict[Path, Axes]:
    """Returns the fan-in axes of each kernel by its path."""
    return {path: axes for path, _, axes in kernel_rows(tree, kernel_axes(layout, tree))}


def broadcast(setting: Setting, tree: PyTree, name: str) -> PyTree:
    """Returns a tree of the structure of ``tree`` from a pytree prefix of settings.

    None is a setting like any other. Raises ValueError, with the path, for a prefix of another
    structure; ``name`` is the setting's name in the message.
    """
    try:
        return jax.tree.broadcast(setting, tree, is_leaf=is_absent)
    except ValueError as error:
        raise ValueError(
            f"{name} is no pytree prefix of the parameters; wanted one value (or None) for all, or "
            "a tree of them that jax.tree.broadcast takes: "
            f"{_in_line(error, 'broadcast_prefix prefix_tree', name)}"
        ) from error


def refuse_coordinates(tree: PyTree) -> None:
    """Raises TypeError for nodes that store coordinates instead of weights."""
    for path, entry in named_entries(tree, lambda x: is_absent(x) or _has_coordinates(x)):
        if _has_coordinates(entry):
            raise TypeError(
                f"the kernel {path!r} is {type(entry).__name__}, which stores basis coordinates, "
                "not weights, so it cannot be centered, measured or put on a sphere. Use "
                "sphere_projection(centered=True), or linearly_constrain, on plain kernels; "
                "measure effective(params)."
            )


def _has_coordinates(x: Any) -> bool:
    return isinstance(x, Reparametrization) and not x.stores_weights


def _checked_axes(path: Path, leaf: Any, axes: Any) -> Any:
    """Returns the axes as sorted negative numbers; the leaf itself if it is a placeholder."""
    is_tuple_of_ints = isinstance(axes, tuple) and axes and all(isinstance(a, int) for a in axes)
    if not (is_absent(axes) or is_tuple_of_ints):
        raise TypeError(
            f"the layout returned {axes!r} for the leaf {path!r}; wanted a tuple of ints, or None."
        )
    if is_absent(leaf):
        return leaf
    if is_absent(axes):
        return None
    return negative_axes(axes, leaf.ndim, f"the leaf {path!r} of shape {tuple(leaf.shape)}")


def flax_layout(params: PyTree) -> PyTree:
    """Layout of Flax kernels: leaves named ``kernel``, all axes but the last.

    Leaves of fewer than two axes are free. The layout is right for (in, out) and for convolutions
    of any rank (H, W, in, out), grouped and depthwise ones included, since their ``in`` is per
    group. It works on ``nnx.state(model)``, inside ``nnx.Optimizer``, on pure dicts and on Linen's
    trees. Kernels of more axes need `traced_layout`, `jaxnorm.nnx.layout` or `layout_from_rules`:
    stacked ones (``nn.scan``), attention projections (in, heads, head size), and transposed
    convolutions with a stride or with ``transpose_kernel``.

    Args:
        params: a tree of arrays, or of their shapes.

    Returns:
        A tree of the same structure: a tuple of negative axes at each kernel, None elsewhere.

    Warns:
        UserWarning: once per leaf, if its name, the number of its axes or the shape of the bias
            beside it shows that the rule is wrong: the kernels above, and LoRA factors.

    Only names and ranks count, so jit, pmap, shard_map and sharding change nothing.

    Example:
        >>> import jax.numpy as jnp
        >>> flax_layout({"conv": {"kernel": jnp.ones((3, 3, 8, 16)), "bias": jnp.ones(16)}})
        {'conv': {'bias': None, 'kernel': (-4, -3, -2)}}
    """
    warn_if_doubtful(params, is_doubtful_in_flax)
    return _layout_by_name("kernel", -1)(params)


def torch_layout(params: PyTree) -> PyTree:
    """Layout of Equinox and PyTorch: leaves named ``weight``, all axes but the first.

    Args:
        params: a tree of arrays, or of their shapes.

    Returns:
        A tree of the same structure: a tuple of negative axes at each kernel, None elsewhere.

    Warns:
        UserWarning: once per leaf, if its name, the number of its axes or the shape of the bias
            beside it shows that the rule is wrong: embeddings, a normalization's scale of two axes
            or more, stacked layers, PyTorch's transposed convolutions; recurrent cells
            (``weight_ih``) and LoRA factors, which the layout leaves free.

    Only names and ranks count, so jit, pmap, shard_map and sharding change nothing.

    Example:
        >>> import jax.numpy as jnp
        >>> torch_layout({"weight": jnp.ones((16, 8, 3, 3)), "bias": jnp.ones(16)})
        {'bias': None, 'weight': (-3, -2, -1)}
    """
    warn_if_doubtful(params, is_doubtful_in_torch)
    return _layout_by_name("weight", 0)(params)


def layout_from_rules(rules: Sequence[tuple[str, int | Iterable[int] | None]]) -> Layout:
    r"""Returns a layout from ``(regular expression, fan-in axes or None)`` pairs.

    Args:
        rules: the first match decides. Expressions are searched for in the ``/``-joined path of
            each leaf (anchor them with ``^`` and ``$``); axes may be positive and are kept as
            negative ones. Leaves that no rule matches are free. At a reparametrized kernel the
            node's own axes hold, and a rule only says whether the kernel is constrained.

    Returns:
        A layout. Calling it raises ValueError if a rule matches no path at all (the message lists
        the paths), or if a leaf lacks the axes that its rule names.

    Only names and ranks count, so jit, pmap, shard_map and sharding change nothing.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"head": {"kernel": jnp.ones((8, 2))}, "qkv": {"kernel": jnp.ones((8, 4, 2))}}
        >>> layout_from_rules([("head", None), ("qkv/kernel$", 0)])(params)
        {'head': {'kernel': None}, 'qkv': {'kernel': (-3,)}}
    """
    if isinstance(rules, dict):
        raise TypeError(
            "the rules are a dict; wanted a list of pairs, of which the first match decides: "
            "layout_from_rules([(regex, axes), ...])."
        )
    compiled = [(re.compile(pattern), axes) for pattern, axes in rules]

    def select(path: Path, entry: Any) -> Axes | None:
        axes = next((axes for pattern, axes in compiled if pattern.search(str(path))), None)
        if axes is None or is_node(entry):
            return None if axes is None else OWN_AXES
        return negative_axes(axes, entry.ndim, f"the leaf {path!r} of shape {tuple(entry.shape)}")

    def layout(params: PyTree) -> PyTree:
        _check_matches([pattern for pattern, _ in compiled], params)
        return layout_by(select)(params)

    return layout


def exclude(*patterns: str, layout: Layout = flax_layout) -> Layout:
    """Returns a layout without the leaves whose path matches one of the regular expressions.

    Args:
        *patterns: expressions that are searched for in the ``/``-joined paths, the classifier's
            ``"^head/"`` for example.
        layout: the layout from which they are taken.

    Returns:
        A layout. Calling it raises ValueError if an expression matches no path at all.

    Only names and ranks count, so jit, pmap, shard_map and sharding change nothing.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"head": {"kernel": jnp.ones((8, 2))}, "body": {"kernel": jnp.ones((8, 4))}}
        >>> exclude("^head/")(params)
        {'body': {'kernel': (-2,)}, 'head': {'kernel': None}}
    """
    if any(callable(pattern) for pattern in patterns):
        raise TypeError(
            "exclude got a function among its regular expressions; wanted the layout by keyword: "
            'exclude("^head/", layout=torch_layout).'
        )
    compiled = [re.compile(pattern) for pattern in patterns]

    def is_excluded(path: Path) -> bool:
        return any(pattern.search(str(path)) for pattern in compiled)

    def layout_of_others(params: PyTree) -> PyTree:
        _check_matches(compiled, params)
        # An excluded leaf is masked, so that no layout by names warns of it.
        masked = map_entries(lambda path, x: optax.MaskedNode() if is_excluded(path) else x, params)
        axes = kernel_axes(layout, masked, require_some=False)

        def axes_of(path: Path, entry: Any, axes: Any) -> Any:
            return _entry_axes(entry, None) if is_excluded(path) else axes

        return map_entries(axes_of, params, axes)

    return layout_of_others


def layout_by(select: Select) -> Layout:
    """Returns the layout whose axes are ``select(path, entry)`` at each array or node.

    The axes of a node are its own: for a node, any axes but None mean that it is constrained.
    """

    def axes_of(path: Path, entry: Any) -> Any:
        return _entry_axes(entry, None if is_absent(entry) else select(path, entry))

    return lambda params: map_entries(axes_of, params)


def layout_at(axes: Mapping[Path, Axes]) -> Layout:
    """Returns the layout of these axes by path, with all other leaves unconstrained."""
    return layout_by(lambda path, _: axes.get(path))


def _layout_by_name(name: str, unit_axis: int) -> Layout:
    """Returns the layout of leaves with one name: all axes but the units' one are fan-in."""

    def select(path: Path, entry: Any) -> Axes | None:
        if path.name != name:
            return None
        if is_node(entry):
            return OWN_AXES
        axes = range(-entry.ndim, 0)
        return tuple(axis for axis in axes if axis != axes[unit_axis]) if entry.ndim > 1 else None

    return layout_by(select)


def _entry_axes(entry: Any, axes: Axes | None) -> Any:
    """Returns what a layout has in the place of an entry: for a node, the node with axes in it."""
    if not isinstance(entry, Reparametrization):
        return entry if is_absent(entry) else axes

    def axes_of(name: str, value: Any) -> Any:
        constrained = axes is not None and name in entry.kernel_fields
        return _entry_axes(value, entry.fan_in_axes if constrained else None)

    return entry.replaced(**{name: axes_of(name, value) for name, value in entry.arrays().items()})


def _check_matches(patterns: list[re.Pattern[str]], params: PyTree) -> None:
    """Raises for a pattern that matches no path, unless a mask may have removed the leaves."""
    named = named_entries(params)
    if any(isinstance(entry, optax.MaskedNode) for _, entry in named):
        return
    for pattern in patterns:
        if not any(pattern.search(str(path)) for path, _ in named):
            raise ValueError(
                f"the layout rule {pattern.pattern!r} matches no parameter. The paths are: "
                f"{listed(path for path, _ in named)}. Mend the expression, or drop the rule."
            )
