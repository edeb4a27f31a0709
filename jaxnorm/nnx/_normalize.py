"""Arithmetic of normalization layers: statistics, scale and bias."""

import functools
import operator

from jaxtyping import Array, Float

from jaxnorm._fold import inverse_deviation
from jaxnorm._numerics import promote
from jaxnorm._statistics import split_groups

Values = Float[Array, "..."]

#: A mean and a variance, or a scale and a bias; None for one that a layer leaves out.
Pair = tuple[Values | None, Values | None]


def check_features(x: Values, num_features: int, axis: int = -1) -> None:
    """Raises ValueError if ``axis`` has another size, which would broadcast if one of them is 1."""
    if not -x.ndim <= axis < x.ndim or x.shape[axis] != num_features:
        place = f"(batch, ..., {num_features})" if axis == -1 else f"{num_features} on axis {axis}"
        raise ValueError(
            f"got activations of shape {tuple(x.shape)}; wanted {place}, as "
            f"the layer was made with num_features={num_features}."
        )


def normalize(
    x: Values,
    mean: Values | None,
    variance: Values | None,
    epsilon: float,
    scale: Values | None,
    bias: Values | None,
    groups: int = 1,
) -> Values:
    """Gamma (x - mu) / sqrt(var + eps) + beta in float32 or wider; None leaves a part out.

    The factors per unit are multiplied first: the array takes one subtraction, one product and one
    sum, and no division.

    Args:
        x: activations, (samples, ..., units).
        mean: mu, of shape (units,) or (groups, units).
        variance: the biased variance, of mean's shape.
        epsilon: added to the variance.
        scale: gamma, of shape (units,).
        bias: beta, of shape (units,).
        groups: the number of contiguous groups of samples.
    """
    arrays = (mean, variance, scale, bias)
    wide = promote(x, *[array for array in arrays if array is not None])
    # Tables of shape (1 or groups, units).
    mean, variance, scale, bias = (
        None if array is None else promote(array, wide).reshape(-1, x.shape[-1]) for array in arrays
    )
    inverse = None if variance is None else inverse_deviation(variance, epsilon)
    parts = split_groups(wide, groups) if groups > 1 else wide
    if mean is not None:
        parts = parts - _per_group(mean, parts)
    if factors := [table for table in (inverse, scale) if table is not None]:
        parts = parts * _per_group(functools.reduce(operator.mul, factors), parts)
    normalized = parts.reshape(x.shape)
    return normalized if bias is None else normalized + _per_group(bias, normalized)


def _per_group(table: Values, parts: Values) -> Values:
    """Inserts axes of size 1 between the groups and the units."""
    if parts.ndim == 1:
        return table[0]
    return table.reshape(len(table), *[1] * (parts.ndim - 2), -1)
