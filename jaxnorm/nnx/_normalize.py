"""Arithmetic of normalization layers: statistics, batch renormalization, scale and bias."""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._checks import NONNEGATIVE, Range, check_number
from jaxnorm._fold import inverse_deviation
from jaxnorm._numerics import promote
from jaxnorm._statistics import split_groups

Values = Float[Array, "..."]

#: A mean and a variance, or r and d of batch renormalization; None for one that a layer leaves out.
Pair = tuple[Values | None, Values | None]

_AT_LEAST_ONE = Range("a number of at least 1", lambda x: x >= 1)


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
    correction: Pair = (None, None),
) -> Values:
    """Gamma ((x - mu) r / sqrt(var + eps) + d) + beta in float32 or wider; None leaves a part out.

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
        correction: r and d of batch renormalization, of mean's shape.
    """
    arrays = (mean, variance, scale, bias, *correction)
    wide = promote(x, *[array for array in arrays if array is not None])
    # Tables of shape (1 or groups, units).
    mean, variance, scale, bias, r, d = (
        None if array is None else promote(array, wide).reshape(-1, x.shape[-1]) for array in arrays
    )
    inverse = None if variance is None else inverse_deviation(variance, epsilon)
    parts = split_groups(wide, groups) if groups > 1 else wide
    if mean is not None:
        parts = parts - _per_group(mean, parts)
    if factors := [table for table in (inverse, r, scale) if table is not None]:
        parts = parts * _per_group(functools.reduce(operator.mul, factors), parts)
    if d is not None:
        parts = parts + _per_group(d if scale is None else d * scale, parts)
    normalized = parts.reshape(x.shape)
    return normalized if bias is None else normalized + _per_group(bias, normalized)


def _per_group(table: Values, parts: Values) -> Values:
    """Inserts axes of size 1 between the groups and the units."""
    if parts.ndim == 1:
        return table[0]
    return table.reshape(len(table), *[1] * (parts.ndim - 2), -1)


def renormalization_limits(limits: Any) -> tuple[float, float] | None:
    """Returns ``(r_max, d_max)`` as floats, or None. Raises for anything else."""
    if limits is None:
        return None
    r_max, d_max = limits
    check_number(r_max, _AT_LEAST_ONE, "r_max", "3.0 for example", "renormalize")
    check_number(d_max, NONNEGATIVE, "d_max", "5.0 for example", "renormalize")
    return float(r_max), float(d_max)


def renormalization(
    batch: Pair, running: Pair, epsilon: float, limits: tuple[float, float]
) -> Pair:
    """Corrections r = s_B / s and d = (mu_B - mu) / s within their limits, without gradient.

    Both deviations include epsilon, so that within the limits the result is that of evaluation.

    Args:
        batch: mean and variance of the batch, of shape (units,) or (groups, units), or None.
        running: the running mean and variance, of shape (units,), or None.
        epsilon: added to both variances.
        limits: r_max and d_max.
    """
    (mean, variance), (old_mean, old_variance) = jax.lax.stop_gradient((batch, running))
    r_max, d_max = limits
    inverse: Values | float = 1.0
    r = d = None
    if variance is not None and old_variance is not None:
        inverse = _like(inverse_deviation(old_variance, epsilon), variance)
        r = jnp.clip(inverse / inverse_deviation(variance, epsilon), 1 / r_max, r_max)
    if mean is not None and old_mean is not None:
        d = jnp.clip((mean - _like(old_mean, mean)) * inverse, -d_max, d_max)
    return r, d


def _like(values: Values, batch: Values) -> Values:
    """Casts values of shape (units,) to the rank and type of a batch's statistics."""
    return values.astype(batch.dtype).reshape(*[1] * (batch.ndim - 1), -1)
