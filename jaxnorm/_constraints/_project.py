"""The constraint set itself: which leaves are on it, putting them there, how far off they are."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._checks import all_zero
from jaxnorm._constraints._unit import (
    Weights,
    check_sphere,
    check_squared_radius,
    project_to_sphere,
    radii,
    squared_norm,
)
from jaxnorm._numerics import promote
from jaxnorm._trees._constrained import Setting, constrained_leaves, setting_per_leaf
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import Path, rebuild

Scalar = Float[Array, ""]


def project(
    params: PyTree,
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    centered: Setting = True,
) -> PyTree:
    """Puts every kernel on {w : ||w||^2 = c, and 1'w = 0 if centered}, unit by unit.

    Each unit becomes the nearest point of the set, as `project_to_sphere` gives it; a unit whose
    centered weights are zero becomes zero, since no point is nearest. Use it once on initial
    parameters, and after ``optax.apply_updates`` on bfloat16 parameters if their rounding matters.

    Args:
        params: a tree of parameters; reparametrization nodes are constrained in their kernel-shaped
            fields.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a positive number or a pytree prefix of them.
        centered: whether the units are also zero-mean; a bool, or a pytree prefix of them.

    Returns:
        A tree of the same structure, shapes and types.

    Raises:
        ValueError: if the layout constrains nothing, a centered unit has a single weight, or c is
            not positive.
        TypeError: for `LinearlyConstrained` kernels, whose coordinates are no weights.

    Under jit, pmap, shard_map and with sharded parameters it means the same; no collective is
    needed unless a kernel is sharded along its fan-in (inside shard_map, where the sums are a
    shard's own, such a kernel is not supported).

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.array([[1.0], [3.0]]), "bias": jnp.ones(1)}
        >>> project(params)["kernel"].tolist()
        [[-1.0], [1.0]]

    Source: Ikami et al. 2021, Eqs. 2 and 11.
    """
    rows = kernels_of(params, layout, squared_radius, centered=centered)
    projected = [
        leaf if axes is None else project_to_sphere(leaf, axes, radius, own)
        for _, leaf, axes, radius, own in rows
    ]
    return rebuild(params, projected)


def constraint_drift(
    params: PyTree, *, layout: Layout = flax_layout, squared_radius: Setting = 2.0
) -> dict[str, Float[Array, ""]]:
    """How far the kernels are from the centered sphere: a metric to log.

    Args:
        params: a tree of parameters.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a number or a pytree prefix of them.

    Returns:
        ``sum``, the largest |1'w| of all units, and ``squared_norm``, the largest | ||w||^2 - c |;
        float32 scalars (float64 if the parameters are).

    Raises:
        ValueError: if the layout constrains nothing, or c is not positive.
        TypeError: for `LinearlyConstrained` kernels: ask it of ``effective(params)``.

    Example:
        >>> import jax.numpy as jnp
        >>> drift = constraint_drift({"kernel": jnp.array([[-1.0], [1.5]])})
        >>> {name: float(value) for name, value in drift.items()}
        {'squared_norm': 1.25, 'sum': 0.5}
    """
    off = [
        drifts(promote(row.leaf), row.axes, row.radius)
        for row in kernels_of(params, layout, squared_radius)
        if row.axes is not None
    ]
    return {
        "squared_norm": stacked([norm for _, norm in off]).max(),
        "sum": stacked([total for total, _ in off]).max(),
    }


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
    own_norm_allowed: bool = False,
) -> list[Kernel]:
    """Every leaf, kernel or not. Raises ValueError, naming a parameter whose set is empty.

    A radius of None means a unit's norm at ``init``, where that is allowed.
    """
    given = setting_per_leaf(squared_radius, params, "squared_radius")
    leaves = constrained_leaves(layout, params, weights_alone=True)
    flags = setting_per_leaf(centered, params, "centered")
    rows = [Kernel(*row, *own) for row, *own in zip(leaves, given, flags, strict=True)]
    for path, leaf, axes, radius, flag in rows:
        if axes is not None:
            if not isinstance(flag, bool):
                raise TypeError(f"centered is {flag!r} for the parameter {path!r}; wanted a bool.")
            check_sphere(leaf, axes, flag, f"the parameter {path!r}")
            if radius is not None or not own_norm_allowed:
                check_squared_radius(radius, f"the parameter {path!r}")
            elif all_zero(leaf):
                raise ValueError(
                    f"the weights of {path!r} are all zero, and squared_radius=None keeps each "
                    "unit's norm, so they would stay zero. Give it a radius, in a pytree prefix, "
                    "or random weights, or leave it out of the layout, with exclude."
                )
    return rows


def drifts(wide: Weights, axes: Axes, squared_radius: Any) -> tuple[Scalar, Scalar]:
    """The largest |1'w| of all units, and the largest | ||w||^2 - c |."""
    off = jnp.abs(squared_norm(wide, axes) - radii(squared_radius, wide, axes))
    return jnp.abs(wide.sum(axes)).max(initial=0.0), off.max(initial=0.0)


def stacked(scalars: list[Scalar]) -> Float[Array, " leaves"]:
    """Numbers of several types in the widest of them; a zero where there are none."""
    return jnp.stack([promote(x, *scalars) for x in scalars] or [jnp.zeros(())])
