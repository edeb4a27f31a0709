"""A unit's weight vector: its mean, its norm, centering and the sphere.

Everything is computed in float32 or wider and stored in the array's own type. Each function is an
O(parameters) sum over the fan-in axes and works under jit, vmap and with sharded arrays; a
kernel that is sharded along its fan-in costs one all-reduce per sum.
"""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxnorm._checks import POSITIVE, check_number
from jaxnorm._numerics import ROUNDING_ERRORS, nonzero, promote, rounding_floor
from jaxnorm._trees._axes import fan_in, negative_axes, per_unit, unit_shape
from jaxnorm._trees._node import Axes

Weights = Float[Array, "..."]
Units = Float[Array, "..."]

#: The squared norm that counts as zero: below it the gradient of a quotient by the norm overflows.
SMALLEST = 1e-36

RADIUS_EXAMPLE = "the paper's c = 2 for example"


def center(weights: Weights, fan_in_axes: int | Iterable[int]) -> Weights:
    """Subtracts each unit's mean over its fan-in axes: w - (1'w / m) 1.

    Args:
        weights: array of any rank and floating type.
        fan_in_axes: the axes that one unit's weight vector runs over; the others count units.

    Returns:
        An array of the same shape and type. A unit with a single weight becomes zero.

    Raises:
        ValueError: for axes that the array does not have.
        TypeError: for weights that are not real floating-point numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> center(jnp.array([[1.0, 2.0], [3.0, 6.0]]), 0).tolist()
        [[-1.0, -2.0], [1.0, 2.0]]

    Source: Ikami et al. 2021 (constrained weight optimization), section 3.2; Kalman et al.'s and
    Yong et al.'s centralized gradients are the same map applied to gradients.
    """
    axes = negative_axes(fan_in_axes, weights.ndim, "the weights array")
    wide = promote(weights)
    return (wide - wide.mean(axes, keepdims=True)).astype(weights.dtype)


def project_to_sphere(
    weights: Weights,
    fan_in_axes: int | Iterable[int],
    squared_radius: float | Float[Array, "..."] = 2.0,
    centered: bool = True,
) -> Weights:
    """The nearest point of {w : ||w||^2 = c, and 1'w = 0 if centered}, unit by unit.

    w <- sqrt(c) (w - mean) / ||w - mean||. Where w - mean is zero (to rounding) every point of the
    sphere is as near; the result is zero there and so is its gradient. (Zero: of a norm below
    1e-18.) A norm whose square overflows gives NaN.

    Args:
        weights: array of any rank and floating type.
        fan_in_axes: the axes that one unit's weight vector runs over; the others count units.
        squared_radius: c, a positive number, or an array of one a unit.
        centered: whether the mean over the fan-in is removed first.

    Returns:
        An array of the same shape and type.

    Raises:
        ValueError: for axes that the array does not have, for a centered sphere of units with a
            single weight, which holds no point, and for c that is not positive or of another shape.
        TypeError: for weights that are not real floating-point numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> project_to_sphere(jnp.array([[1.0, 0.0], [3.0, 0.0]]), 0).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]

    Source: Ikami et al. 2021, Eq. 11. Erratum: Eqs. 13-14, which restate it as a decay and a step
    length, drop the factor sqrt(c): beta = 1 - sqrt(c)/||.||, alpha' = sqrt(c) alpha/||.||.
    """
    axes = negative_axes(fan_in_axes, weights.ndim, "the weights array")
    check_sphere(weights, axes, centered, "the weights array")
    check_squared_radius(squared_radius, "the weights array")
    deviation, factor = to_sphere(promote(weights), axes, squared_radius, centered)
    return (deviation * factor).astype(weights.dtype)


def to_sphere(
    wide: Weights, axes: Axes, squared_radius: Any, centered: bool
) -> tuple[Weights, Units]:
    """The deviation of wide weights from their mean, and the factor that puts it on the sphere.

    The mean goes first, so that an offset of any size cancels before anything is squared. Where
    the deviation is zero the factor is zero, with no gradient.
    """
    mean = wide.mean(axes, keepdims=True) if centered else jnp.zeros((), wide.dtype)
    mean = jax.lax.stop_gradient(mean)
    floor = rounding_floor(mean, count=fan_in(wide, axes))
    # What the rounding of the mean has left is taken away in the pass of the squares.
    deviation, factor, _ = near_sphere(wide - mean, axes, squared_radius, centered, floor)
    return deviation, factor


def near_sphere(
    wide: Weights, axes: Axes, squared_radius: Any, centered: bool, floor: Any = 0.0
) -> tuple[Weights, Units, Bool[Array, "..."]]:
    """As `to_sphere`, in one pass over weights of a mean near zero; and whether there is a point.

    ||w - mean||^2 = ||w||^2 - m mean^2 cancels little there.
    """
    size, squares = fan_in(wide, axes), squared_norm(wide, axes)
    mean = wide.mean(axes, keepdims=True) if centered else jnp.zeros((), wide.dtype)
    of_mean = size * jnp.square(mean)
    squares = squares - of_mean
    rounding = ROUNDING_ERRORS * float(jnp.finfo(wide.dtype).eps) * of_mean
    # Written so that NaN counts as a point: it must stay visible in the result.
    exists = ~(squares <= SMALLEST + rounding + floor)
    # Replaced before the root is taken: else the branch not taken puts NaN into the gradient.
    norm = jnp.sqrt(nonzero(squares, ~exists))
    norm = jnp.where(norm < jnp.inf, norm, jnp.nan)
    factor = jnp.sqrt(radii(squared_radius, wide, axes)) / norm
    return wide - mean, jnp.where(exists, factor, 0.0), exists


def squared_norm(wide: Weights, axes: Axes) -> Float[Array, "..."]:
    """||w||^2 of each unit, with the fan-in axes kept as axes of size 1."""
    return jnp.square(wide).sum(axes, keepdims=True)


def radii(squared_radius: Any, wide: Weights, axes: Axes) -> Float[Array, "..."]:
    """C as a scalar, or one a unit with the fan-in axes kept as axes of size 1.

    Raises ValueError for any other shape: broadcast, it would meet the weights of a unit.
    """
    radius, units = jnp.asarray(squared_radius, wide.dtype), unit_shape(wide, axes)
    kept = tuple(1 if n - wide.ndim in axes else size for n, size in enumerate(wide.shape))
    if radius.shape in ((), kept):
        return radius
    if radius.shape != units:
        raise ValueError(
            f"squared_radius is an array of shape {radius.shape} for a parameter of shape "
            f"{wide.shape} with the fan-in axes {axes}; wanted a number, or one for each unit, of "
            f"shape {units}."
        )
    return per_unit(radius, axes)


def check_squared_radius(squared_radius: Any, name: str) -> None:
    """Raises for a radius that is no positive number; traced ones are not looked at."""
    if squared_radius is None:
        raise ValueError(
            f"squared_radius is None for {name}; wanted a positive number, {RADIUS_EXAMPLE}."
        )
    check_number(squared_radius, POSITIVE, f"squared_radius for {name}", RADIUS_EXAMPLE)


def check_sphere(weights: Any, axes: Axes, centered: bool, name: str) -> None:
    """Raises ValueError for units of a single weight: centered they are zero, on no sphere."""
    if centered and fan_in(weights, axes) == 1:
        raise ValueError(
            f"{name} of shape {tuple(weights.shape)} has units with one weight each (fan-in axes "
            f"{axes}): centered, they are zero and never train. Leave it out of the layout, with "
            "exclude (None for it in layout_from_rules), or pass centered=False where there is a "
            "sphere."
        )
