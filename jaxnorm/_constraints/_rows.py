"""The leaves of a tree of parameters, each with what the constraint says of it."""

from typing import Any, NamedTuple

from jaxtyping import PyTree

from jaxnorm._trees._constrained import constrained_leaves, of_zero_sum_kernels
from jaxnorm._trees._layout import Layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path
from jaxnorm._trees._prefix import Setting, setting_per_leaf


class Row(NamedTuple):
    """One leaf.

    Attributes:
        path: where it is, into nodes.
        leaf: the array.
        axes: its fan-in axes, negative; None where nothing is constrained.
        radius: the squared radius of its units, or None.
        zero_sum: whether it is the coordinates of units that sum to zero whatever they are.
    """

    path: Path
    leaf: Any
    axes: Axes | None
    radius: Any
    zero_sum: bool


def rows_of(params: PyTree, layout: Layout, squared_radius: Setting) -> list[Row]:
    """Every leaf. Raises ValueError as `constrained_leaves` and `setting_per_leaf` do."""
    radii = setting_per_leaf(squared_radius, params, "squared_radius")
    columns = constrained_leaves(layout, params), radii, of_zero_sum_kernels(params)
    return [Row(*leaf, radius, zero_sum) for leaf, radius, zero_sum in zip(*columns, strict=True)]
