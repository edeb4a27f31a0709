"""The leaves of a tree of parameters, each with what the constraint says of it."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._constraints._unit import (
    Weights,
    check_sphere,
    check_squared_radius,
    radii,
    squared_norm,
)
from jaxnorm._numerics import promote
from jaxnorm._trees._constrained import constrained_leaves
from jaxnorm._trees._layout import Layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path
from jaxnorm._trees._prefix import Setting, setting_per_leaf

Scalar = Float[Array, ""]


class Kernel(NamedTuple):
    """One leaf.

    Attributes:
        path: where it is, into nodes.
        leaf: the array.
        axes: its fan-in axes, negative; None where nothing is constrained.
        radius: the squared radius of its units, or None.
        centered: whether its units are zero-mean.
    """

    path: Path
    leaf: Any
    axes: Axes | None
    radius: Any
    centered: bool


def kernels_of(
    params: PyTree,
    layout: Layout,
    squared_radius: Setting,
    *,
    centered: Setting = False,
) -> list[Kernel]:
    """Every leaf, kernel or not. Raises ValueError, naming a parameter whose set is empty."""
    given = setting_per_leaf(squared_radius, params, "squared_radius")
    leaves = constrained_leaves(layout, params, weights_alone=True)
    flags = setting_per_leaf(centered, params, "centered")
    rows = [Kernel(*row, *own) for row, *own in zip(leaves, given, flags, strict=True)]
    for path, leaf, axes, radius, flag in rows:
        if axes is not None:
            if not isinstance(flag, bool):
                raise TypeError(f"centered is {flag!r} for the parameter {path!r}; wanted a bool.")
            check_sphere(leaf, axes, flag, f"the parameter {path!r}")
            check_squared_radius(radius, f"the parameter {path!r}")
    return rows


def drifts(wide: Weights, axes: Axes, squared_radius: Any) -> tuple[Scalar, Scalar]:
    """The largest |1'w| of all units, and the largest | ||w||^2 - c |."""
    off = jnp.abs(squared_norm(wide, axes) - radii(squared_radius, wide, axes))
    return jnp.abs(wide.sum(axes)).max(initial=0.0), off.max(initial=0.0)


def stacked(scalars: list[Scalar]) -> Float[Array, " leaves"]:
    """Numbers of several types in the widest of them; a zero where there are none."""
    return jnp.stack([promote(x, *scalars) for x in scalars] or [jnp.zeros(())])
