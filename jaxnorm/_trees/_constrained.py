"""What belongs to each leaf: its fan-in axes, by a layout, and its settings."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxnorm._axes import check_per_unit as check_per_unit
from jaxnorm._checks import FINITE, NONNEGATIVE, POSITIVE, check_number
from jaxnorm._layout import kernel_axes as kernel_axes_of
from jaxnorm._trees._axes import negative_axes
from jaxnorm._trees._layout import Layout, is_axes
from jaxnorm._trees._node import Axes, Reparametrization
from jaxnorm._trees._paths import Path, entries, is_absent, leaves, listed, rebuild

#: ``(path, leaf, axes)``, with None for axes where there is nothing to constrain.
Constrained = tuple[Path, Any, Axes | None]

#: A number, None, or a pytree prefix of them.
Setting = Any

#: What the numbers of a setting may be; squared radii matter, and are checked, at kernels alone.
RANGES = {
    "stddev": NONNEGATIVE,
    "stddevs": NONNEGATIVE,
    "batch_size": POSITIVE,
    **dict.fromkeys(("means", "strengths", "excess_kurtosis"), FINITE),
}


def constrained_leaves(
    layout: Layout, tree: PyTree, weights_alone: bool = False
) -> list[Constrained]:
    """Every leaf of ``tree``, nodes opened, with its path and its fan-in axes or None.

    Raises ValueError if the layout's result does not fit the tree, or if it constrains nothing;
    TypeError for coordinates, if there are to be ``weights_alone``.
    """
    if weights_alone:
        _check_weights(tree)
    return axes_of_leaves(layout, tree, some=True)


def kernel_axes(tree: PyTree, layout: Layout) -> dict[Path, Axes]:
    """The fan-in axes of each kernel by path."""
    return {path: axes for path, _, axes in constrained_leaves(layout, tree) if axes is not None}


def axes_of_leaves(layout: Layout, tree: PyTree, some: bool = False) -> list[Constrained]:
    """The same, and raises for a layout that constrains nothing only if there must be ``some``."""
    named = leaves(tree)
    axes = jax.tree.leaves(kernel_axes_of(layout, tree, False), is_leaf=is_axes)
    paths = listed(path for path, _ in named) or "(there are none)"
    if len(axes) != len(named):
        raise ValueError(
            f"the layout returned {len(axes)} entries for the {len(named)} parameters {paths}; "
            "wanted a tree of the parameters' structure, with axes or None at each leaf."
        )
    if some and all(entry is None for entry in axes):
        raise ValueError(
            f"the layout constrains no parameter, so this would do nothing. The paths are: {paths}."
            " Pass a layout that knows these names: layout_from_rules([(regex, axes), ...]), "
            "torch_layout, or traced_layout(apply, params, *inputs), which needs no names."
        )
    return [
        (path, leaf, _usable(path, leaf, entry))
        for (path, leaf), entry in zip(named, axes, strict=True)
    ]


def map_constrained(
    function: Callable[..., Any], layout: Layout, tree: PyTree, *columns: list[Any]
) -> PyTree:
    """``function(leaf, axes, *others)`` at each constrained leaf of ``tree``, else the leaf itself.

    ``columns`` hold the others: one value for each leaf of ``tree``, as `flat_leaves` and
    `setting_per_leaf` give them. Absent leaves (None, MaskedNode) are left alone.
    """
    rows = zip(constrained_leaves(layout, tree), *columns, strict=True)
    return rebuild(
        tree,
        [leaf if axes is None else function(leaf, axes, *rest) for (_, leaf, axes), *rest in rows],
    )


def _check_weights(tree: PyTree) -> None:
    """Raises for nodes whose fields of the kernel's shape are coordinates."""

    def is_coordinates(x: Any) -> bool:
        return isinstance(x, Reparametrization) and not x.stores_weights

    for path, entry in entries(tree, lambda x: is_absent(x) or is_coordinates(x)):
        if is_coordinates(entry):
            raise TypeError(
                f"the kernel {path!r} is {type(entry).__name__}: its coordinates are no weights to "
                "be centered, measured or put on a sphere. Use sphere_projection(centered=True), "
                "or linearly_constrain, on plain kernels; measure effective(params)."
            )


def _usable(path: Path, leaf: Any, axes: Any) -> Axes | None:
    if not is_axes(axes):
        raise TypeError(
            f"the layout returned {axes!r} for the leaf {path!r}; wanted a tuple of ints, or None."
        )
    if is_absent(axes) or is_absent(leaf):
        return None
    return negative_axes(axes, leaf.ndim, f"the leaf {path!r} of shape {tuple(leaf.shape)}")


def setting_per_leaf(setting: Setting, tree: PyTree, name: str) -> list[Any]:
    """The setting of each leaf of ``tree`` (nodes opened, absent leaves included).

    ``setting`` is matched by path, not by structure, so that it stays right where a mask has
    replaced or left out a part of ``tree``. Raises ValueError, with the path, for a leaf that has
    no setting, and for a number that the setting cannot be; TypeError for what is no number.
    """
    check_setting(setting, name)
    given = dict(entries(setting))
    return [_setting_at(path, given, name) for path, _ in leaves(tree)]


def check_setting(setting: Setting, name: str) -> None:
    """Raises for settings that are no numbers of their range.

    Arrays are not looked at where they are measured: what is broken in one shows in the result.
    """
    wanted, measured = RANGES.get(name), name != "stddev"
    for path, value in entries(setting):
        if wanted is not None and not is_absent(value) and not (measured and jnp.ndim(value)):
            of_path = f": mend that of {path!r}" if path else ""
            check_number(value, wanted, name, f"or a tree of them{of_path}")


def _setting_at(path: Path, given: dict[Path, Any], name: str) -> Any:
    """The setting that reaches a leaf: that of the longest prefix of its path."""
    for length in range(len(path), -1, -1):
        prefix = Path(path[:length])
        if prefix in given:
            return given[prefix]
    raise ValueError(
        f"{name} has no entry for the parameter {path!r}; it has entries for "
        f"{listed(given) or 'nothing'}. Wanted one number (or None) for all parameters, or a "
        "tree of them that reaches every leaf, as a pytree prefix does."
    )


def is_zero(setting: Setting) -> bool:
    """Whether a setting is None, or a Python number 0, known before tracing."""
    return setting is None or (isinstance(setting, (int, float)) and setting == 0)
