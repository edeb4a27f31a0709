"""A unit's weight vector: its mean, its norm, centering and the sphere.

Everything is computed in float32 or wider and stored in the array's own type. Each function is an
O(parameters) reduction over the fan-in axes and works under jit, vmap and with sharded arrays; a
kernel that is sharded along its fan-in costs one all-reduce per reduction.
"""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxnorm._checks import POSITIVE, check_number
from jaxnorm._numerics import nonzero, promote, rounding_floor
from jaxnorm._sums import not_stored, parted_axis, some_of, to_weights, total, totals
from jaxnorm._trees._axes import fan_in, negative_axes, per_unit, unit_shape
from jaxnorm._trees._node import Axes

Weights = Float[Array, "..."]

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
    mean = total(wide, axes) / fan_in(wide, axes)
    return (wide - to_weights(mean, wide, axes)).astype(weights.dtype)


def project_to_sphere(
    weights: Weights,
    fan_in_axes: int | Iterable[int],
    squared_radius: float | Float[Array, "..."] = 2.0,
    centered: bool = True,
) -> Weights:
    """The nearest point of {w : ||w||^2 = c, and 1'w = 0 if centered}, unit by unit.

    w <- sqrt(c) (w - mean) / ||w - mean||. Where w - mean is zero (to rounding) every point of the
    sphere is as near; the result is zero there and so is its gradient. (Zero: of a norm below
    1e-19 in float32, whose square underflows.) A norm whose square overflows gives NaN.

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
    point, _ = on_sphere(promote(weights), axes, squared_radius, centered)
    return point.astype(weights.dtype)


def on_sphere(
    wide: Weights,
    axes: Axes,
    squared_radius: float | Float[Array, "..."],
    centered: bool,
    near: Float[Array, "..."] | None = None,
) -> tuple[Weights, Bool[Array, "..."]]:
    """The projection of wide weights, and per unit whether there is one (else zeros).

    ``near`` is what `near_the_mean` would find, where it is known already.
    """
    deviation, factor, exists = to_sphere(wide, axes, squared_radius, centered, near)
    return deviation * to_weights(factor, wide, axes), exists


def to_sphere(
    wide: Weights,
    axes: Axes,
    squared_radius: float | Float[Array, "..."],
    centered: bool,
    near: Float[Array, "..."] | None = None,
) -> tuple[Weights, Float[Array, "..."], Bool[Array, "..."]]:
    """The deviation, the factor per unit that puts it on the sphere (or 0), and which it is."""
    deviation, squared_norm, floor = _deviation(wide, axes, centered, near)
    # Written so that NaN and overflow count as existing: they must stay visible in the result.
    exists = ~(squared_norm <= floor) | jnp.isinf(squared_norm)
    # Replace the norm before dividing: else the branch not taken puts NaN into the gradient.
    ratio = radii(squared_radius, wide, axes) / nonzero(squared_norm, ~exists)
    ratio = jnp.where(jnp.isfinite(squared_norm), ratio, jnp.nan)
    return deviation, jnp.where(exists, jnp.sqrt(ratio), 0.0), exists


def _deviation(
    wide: Weights, axes: Axes, centered: bool, near: Float[Array, "..."] | None
) -> tuple[Weights, Float[Array, "..."], Float[Array, "..."]]:
    """What is to be scaled onto the sphere, its squared norm, and the norm that counts as zero."""
    if not centered:
        deviation = not_stored(wide, axes)
        return deviation, totals(deviation, axes)[1], rounding_floor(jnp.zeros((), wide.dtype))
    size = fan_in(wide, axes)
    near = jax.lax.stop_gradient(near_the_mean(wide, axes) if near is None else near)
    deviation = wide - near
    # What the mean is off by is summed in the same pass as the squares: an offset of any size then
    # costs no accuracy and no extra pass.
    sums, squares = totals(deviation, axes)
    error = sums / size
    squares = squares - size * jnp.square(error)
    floor = rounding_floor(near + error, count=size)
    return deviation - to_weights(error, wide, axes), squares, floor


def near_the_mean(wide: Weights, axes: Axes) -> Float[Array, "..."]:
    """The mean to rounding; where a pass over the kernel is dear, that of some of the weights.

    The mean of n of m weights is off by at most sqrt(||deviation||^2 / n): the difference in
    ``squares`` above then loses a factor of at most 1 + m/n, and 1 + 1/n for random weights.
    """
    axis = parted_axis(wide, axes)
    return (wide if axis is None else some_of(wide, axis)).mean(axes, keepdims=True)


def near_the_mean_of_sum(first: Weights, second: Weights, axes: Axes) -> Float[Array, "..."] | None:
    """What `near_the_mean` finds of a sum, of the two apart; None where it takes all weights.

    For the sake of these few weights a compiler would store the sum, which it else computes again.
    """
    axis = parted_axis(first, axes)
    if axis is None:
        return None
    return (some_of(first, axis) + some_of(second, axis)).mean(axes, keepdims=True)


def squared_norm(wide: Weights, axes: Axes) -> Float[Array, "..."]:
    """||w||^2 of each unit, with the fan-in axes kept as axes of size 1."""
    return total(jnp.square(wide), axes)


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
    """Raises ValueError where the constraint set is empty: a single weight cannot be centered."""
    if centered and fan_in(weights, axes) == 1:
        raise ValueError(
            f"{name} of shape {tuple(weights.shape)} has units with one weight each (fan-in axes "
            f"{axes}): no vector of length one is both zero-mean and on a sphere. Leave it out of "
            "the layout (None for it in layout_from_rules), or pass centered=False."
        )
