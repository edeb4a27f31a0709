"""Units on a sphere: centering, the projection of a kernel, and of every kernel of a tree.

Sums run over the fan-in axes, in float32 or wider; results have the kernel's own type. A kernel
that is sharded along its fan-in costs one all-reduce per sum.
"""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from jaxnorm._axes import check_per_unit, negative_axes, per_unit, unit_shape
from jaxnorm._checks import POSITIVE, all_zero, check_number, warn
from jaxnorm._layout import (
    Layout,
    Setting,
    broadcast,
    flax_layout,
    kernel_axes,
    kernel_rows,
    map_with_axes,
    refuse_coordinates,
)
from jaxnorm._mesh import varying_axes
from jaxnorm._node import Axes
from jaxnorm._numerics import ROUNDING_ERRORS, check_real, norm_of_squares, promote, rounding_floor
from jaxnorm._phases import sizes_like, sums_shape, unit_mean, unit_sizes, unit_sum

Kernel = Float[Array, "..."]
Units = Float[Array, "..."]

#: Squared norm that counts as zero: below it the gradient of a quotient by the norm overflows.
SMALLEST = 1e-36


def center(kernel: Kernel, fan_in_axes: int | Iterable[int]) -> Kernel:
    """Subtracts each unit's mean over its fan-in axes: w - (1'w / m) 1.

    Args:
        kernel: array of any rank and floating type; a gradient or an update too.
        fan_in_axes: the axes of one unit's weight vector; the other axes count units.

    Returns:
        An array of the same shape and type. A unit with a single weight becomes zero.

    Raises:
        ValueError: for axes that the array does not have.
        TypeError: for weights that are not real floating-point numbers.

    Under jit, vmap, pmap and with sharded arrays the result is the same; inside shard_map the
    fan-in must be whole.

    Example:
        >>> import jax.numpy as jnp
        >>> center(jnp.array([[1.0, 2.0], [3.0, 6.0]]), 0).tolist()
        [[-1.0, -2.0], [1.0, 2.0]]

    Source: Ikami et al. 2021 (constrained weight optimization), section 3.2; Yong et al. 2020
    apply the same map to gradients (gradient centralization).
    """
    axes = negative_axes(fan_in_axes, kernel.ndim, "the kernel")
    wide = promote(kernel)
    return (wide - unit_mean(wide, axes)).astype(kernel.dtype)


def project_to_sphere(
    kernel: Kernel,
    fan_in_axes: int | Iterable[int],
    squared_radius: float | Float[Array, "..."] = 2.0,
    centered: bool = True,
) -> Kernel:
    """Projects each unit onto {w : ||w||^2 = c, and 1'w = 0 if centered}.

    w <- sqrt(c) (w - mean) / ||w - mean||. If w - mean is zero (to rounding, or of a norm below
    1e-18), every point of the sphere is equally near; the result is then zero and so is its
    gradient. A norm whose square overflows gives NaN.

    Args:
        kernel: array of any rank and floating type.
        fan_in_axes: the axes of one unit's weight vector; the other axes count units.
        squared_radius: c, a positive number, or an array of one value per channel.
        centered: if True, the mean over the fan-in is removed first.

    Returns:
        An array of the same shape and type.

    Raises:
        ValueError: for axes that the array does not have, for a centered sphere of units with a
            single weight, which holds no point, and for c that is not positive or of another shape.
        TypeError: for weights that are not real floating-point numbers.

    Under jit, vmap, pmap and with sharded arrays the result is the same; inside shard_map the
    fan-in must be whole.

    Example:
        >>> import jax.numpy as jnp
        >>> project_to_sphere(jnp.array([[1.0, 0.0], [3.0, 0.0]]), 0).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]

    Source: Ikami et al. 2021, Eq. 11. Erratum: Eqs. 13-14, which restate it as a decay and a step
    length, drop the factor sqrt(c): beta = 1 - sqrt(c)/||.||, alpha' = sqrt(c) alpha/||.||.
    """
    axes = negative_axes(fan_in_axes, kernel.ndim, "the kernel")
    check_centering(kernel, axes, centered, "the kernel")
    check_squared_radius(squared_radius, "the kernel")
    deviation, factor = to_sphere(promote(kernel), axes, squared_radius, centered)
    return (deviation * factor).astype(kernel.dtype)


def project(
    params: PyTree,
    *,
    layout: Layout = flax_layout,
    squared_radius: Setting = 2.0,
    centered: Setting = True,
) -> PyTree:
    """Projects every kernel onto {w : ||w||^2 = c, and 1'w = 0 if centered}, unit by unit.

    `project_to_sphere` of each kernel. Call it once on initial parameters, and after
    ``optax.apply_updates`` on bfloat16 parameters if their rounding matters.

    Args:
        params: a tree of parameters; reparametrization nodes are constrained in their kernel-shaped
            fields.
        layout: which leaves are kernels, and their fan-in axes.
        squared_radius: c, a positive number or a pytree prefix of them.
        centered: if True, the units are also zero-sum; a bool, or a pytree prefix of them.

    Returns:
        A tree of the same structure, shapes and types. A unit whose centered weights are zero
        becomes zero, since no point is nearest.

    Raises:
        ValueError: if the layout constrains nothing, a centered unit has a single weight, or c is
            not positive.
        TypeError: for `LinearlyConstrained` kernels, which store coordinates, not weights.

    Warns:
        UserWarning: inside shard_map, for a kernel that varies along a mesh axis: the sums are
            those of each shard, which is wrong if the fan-in is split.

    Under jit, pmap, shard_map and with sharded parameters the result is the same; no collective is
    needed unless a kernel is sharded along its fan-in, which needs jit.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"kernel": jnp.array([[1.0], [3.0]]), "bias": jnp.ones(1)}
        >>> project(params)["kernel"].tolist()
        [[-1.0], [1.0]]

    Source: Ikami et al. 2021, Eqs. 2 and 11.
    """
    axes, radii = check_settings(params, layout, squared_radius, centered)
    flags = broadcast(centered, params, "centered")
    return map_with_axes(project_to_sphere, axes, params, radii, flags)


def to_sphere(
    wide: Kernel, axes: Axes, squared_radius: Any, centered: bool
) -> tuple[Kernel, Units]:
    """Returns each unit's deviation from its mean, and the factor that puts it on the sphere.

    The mean is subtracted twice. Here it is a constant, so that an offset of any size cancels
    before the squares; `to_sphere_in_one_pass` then subtracts what rounding has left of it, and
    that subtraction carries the gradient. The factor is zero, with no gradient, if the deviation
    is zero.
    """
    mean = unit_mean(wide, axes) if centered else jnp.zeros((), wide.dtype)
    mean = jax.lax.stop_gradient(mean)
    floor = rounding_floor(mean, count=sizes_like(wide, axes))
    deviation, factor, _ = to_sphere_in_one_pass(wide - mean, axes, squared_radius, centered, floor)
    return deviation, factor


def to_sphere_in_one_pass(
    wide: Kernel, axes: Axes, squared_radius: Any, centered: bool, floor: Any = 0.0
) -> tuple[Kernel, Units, Bool[Array, "..."]]:
    """Does `to_sphere` for units whose mean is near zero; the third result says if a point exists.

    ||w - mean||^2 = ||w||^2 - m mean^2 cancels little if the mean is small.
    """
    size, squares = sizes_like(wide, axes), squared_norm(wide, axes)
    mean = unit_mean(wide, axes) if centered else jnp.zeros((), wide.dtype)
    squared_mean = size * jnp.square(mean)
    squares = squares - squared_mean
    rounding = ROUNDING_ERRORS * float(jnp.finfo(wide.dtype).eps) * squared_mean
    # Written so that NaN counts as a point: NaN must stay visible in the result.
    exists = ~(squares <= SMALLEST + rounding + floor)
    norm = norm_of_squares(squares, ~exists)
    factor = jnp.sqrt(broadcast_radius(squared_radius, wide, axes)) / norm
    return wide - mean, jnp.where(exists, factor, 0.0), exists


def squared_norm(wide: Kernel, axes: Axes) -> Float[Array, "..."]:
    """Returns ||w||^2 per unit, in the form of `unit_sum`."""
    return unit_sum(jnp.square(wide), axes)


def broadcast_radius(squared_radius: Any, wide: Kernel, axes: Axes) -> Float[Array, "..."]:
    """Returns c as a scalar, or as values that broadcast with the kernel.

    It may be one value per channel, or one per unit in the form of `unit_sum`.

    Raises ValueError for any other shape, which would broadcast against the weights of a unit.
    """
    radius = jnp.asarray(squared_radius, wide.dtype)
    if radius.shape in ((), sums_shape(wide, axes)):
        return radius
    check_per_unit(radius, unit_shape(wide, axes), "squared_radius")
    return per_unit(radius, axes)


def check_kernels(params: PyTree, layout: Layout, centered: Setting) -> PyTree:
    """Returns the fan-in axes of each leaf; raises for kernels that are no real weights.

    Raises also for centered units of a single weight, and warns of shards.
    """
    flags = broadcast(centered, params, "centered")
    refuse_coordinates(params)
    fan_in = kernel_axes(layout, params)
    for path, kernel, axes, flag in kernel_rows(params, fan_in, flags):
        name = f"the parameter {path!r}"
        check_real(kernel, name=name)
        if not isinstance(flag, bool):
            raise TypeError(f"centered is {flag!r} for {name}; wanted a bool.")
        check_centering(kernel, axes, flag, name)
        _warn_of_shards(kernel, axes, name)
    return fan_in


def check_settings(
    params: PyTree,
    layout: Layout,
    squared_radius: Setting,
    centered: Setting,
    keep_norms: bool = False,
) -> tuple[PyTree, PyTree]:
    """Returns the fan-in axes and the squared radius of each leaf, checked at each kernel.

    With ``keep_norms`` a radius of None means that each unit keeps its norm. Raises an error that
    names the kernel if its set is empty.
    """
    radii = broadcast(squared_radius, params, "squared_radius")
    fan_in = check_kernels(params, layout, centered)
    for path, kernel, _, radius in kernel_rows(params, fan_in, radii):
        name = f"the parameter {path!r}"
        if radius is None and keep_norms:
            check_nonzero(kernel, name)
        else:
            check_squared_radius(radius, name)
    return fan_in, radii


def check_nonzero(kernel: Any, name: str) -> None:
    """Raises ValueError for weights that keep their norms, or whose steps are relative to them."""
    if all_zero(kernel):
        raise ValueError(
            f"the weights of {name} are all zero (or, centered, equal within each unit), so that "
            "they would never train. Give it random weights, or leave it out of the layout, with "
            "exclude."
        )


def check_squared_radius(squared_radius: Any, name: str) -> None:
    """Raises for a radius that is no positive number; traced radii pass."""
    advice = "the paper's c = 2 for example"
    check_number(squared_radius, POSITIVE, "squared_radius", advice, name)


def check_centering(kernel: Any, axes: Axes, centered: bool, name: str) -> None:
    """Raises ValueError for units of a single weight, which are zero if they are centered."""
    if centered and np.min(unit_sizes(kernel, axes)) == 1:
        raise ValueError(
            f"{name} of shape {tuple(kernel.shape)} has units with one weight each (fan-in axes "
            f"{axes}): centered, they are zero and never train. Leave it out of the layout, with "
            "exclude (None for it in layout_from_rules), or, where centered is an argument, do not "
            "center it: centered=False."
        )


def _warn_of_shards(kernel: Any, axes: Axes, name: str) -> None:
    """Warns of a kernel that is a shard inside shard_map: its sums are the shard's own."""
    varying = varying_axes(kernel) if isinstance(kernel, jax.Array) else None
    if varying:
        warn(
            f"{name} varies along the mesh axes {tuple(sorted(varying))} inside shard_map, so each "
            f"shard sums over its own part of the fan-in axes {axes}. That is right if the units "
            "are split over the mesh, and wrong if the fan-in is: call this under jit then, which "
            "sums over all shards."
        )
