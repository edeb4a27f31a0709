"""The constraint set itself: putting parameters on it, and measuring how far off they are."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._constraints._drift import drifts
from jaxnorm._constraints._rows import rows_of
from jaxnorm._constraints._unit import (
    check_sphere,
    check_squared_radius,
    project_to_sphere,
)
from jaxnorm._numerics import promote
from jaxnorm._trees._axes import free_part
from jaxnorm._trees._constrained import map_constrained, of_zero_sum_kernels
from jaxnorm._trees._layout import Layout, flax_layout
from jaxnorm._trees._node import Axes
from jaxnorm._trees._paths import is_absent
from jaxnorm._trees._prefix import Setting, setting_per_leaf


def project(
    params: PyTree,
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    centered: bool = True,
) -> PyTree:
    """Puts every kernel on {w : ||w||^2 = c, and 1'w = 0 if centered}, unit by unit.

    The nearest point of the set, as `project_to_sphere` gives it; a unit whose centered weights are
    zero becomes zero, since no point is nearest. Use it once on initial parameters, and after
    ``optax.apply_updates`` on bfloat16 parameters if their rounding matters.

    Args:
        params: a tree of parameters; reparametrization nodes are constrained in their kernel-shaped
            fields.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a positive number or a pytree prefix of them.
        centered: whether the units are also zero-mean; linearly constrained ones always are.

    Returns:
        A tree of the same structure, shapes and types.

    Raises:
        ValueError: if the layout constrains nothing, a centered unit has a single weight, or c is
            not positive.

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
    check_constraint(params, layout, squared_radius, centered)
    radii = setting_per_leaf(squared_radius, params, "squared_radius")

    def put(leaf: Any, axes: Axes, radius: Any, zero_sum: bool) -> Any:
        # Coordinates of zero-sum units have the units' norm, and no mean to remove.
        free = free_part(leaf, axes, zero_sum)
        return project_to_sphere(free, axes, radius, centered and not zero_sum)

    return map_constrained(put, layout, params, radii, of_zero_sum_kernels(params))


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

    Example:
        >>> import jax.numpy as jnp
        >>> drift = constraint_drift({"kernel": jnp.array([[-1.0], [1.5]])})
        >>> {name: float(value) for name, value in drift.items()}
        {'squared_norm': 1.25, 'sum': 0.5}
    """
    off = []
    for path, leaf, axes, radius, zero_sum in rows_of(params, layout, squared_radius):
        if axes is not None:
            check_squared_radius(radius, f"the parameter {path!r}")
            off.append(drifts(promote(leaf), axes, radius, zero_sum))
    return {
        "squared_norm": _largest([norm for _, _, norm in off]),
        "sum": _largest([total for _, total, _ in off]),
    }


def _largest(values: list[Float[Array, ""]]) -> Float[Array, ""]:
    wide = [promote(value, *values) for value in values]
    return jnp.stack(wide).max() if wide else jnp.zeros((), jnp.float32)


def check_constraint(
    params: PyTree,
    layout: Layout,
    squared_radius: Setting,
    centered: bool,
    own_norm_allowed: bool = False,
) -> None:
    """Raises ValueError, naming the parameter, where the constraint set is empty.

    A radius of None means a unit's norm before the update, which only an update knows.
    """
    for path, leaf, axes, radius, zero_sum in rows_of(params, layout, squared_radius):
        if axes is None or is_absent(leaf):
            continue
        check_sphere(leaf, axes, centered and not zero_sum, f"the parameter {path!r}")
        if radius is not None or not own_norm_allowed:
            check_squared_radius(radius, f"the parameter {path!r}")
