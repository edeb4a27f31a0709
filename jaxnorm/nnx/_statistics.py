"""Statistics of activations as state, and normalizing with them, batch renormalization too."""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Shaped

from jaxnorm._checks import NONNEGATIVE, Range, check_number
from jaxnorm._fold import inverse_deviation
from jaxnorm._numerics import promote
from jaxnorm._statistics import split_groups
from jaxnorm.nnx._layer import Signature

Values = Float[Array, "..."]

_AT_LEAST_ONE = Range("a number of at least 1", 1)


class Statistic(nnx.Variable[Any]):
    """A mean or a variance that a layer keeps: not a parameter, never trained.

    Example:
        >>> from jaxnorm.nnx import BatchNorm
        >>> sorted(nnx.to_pure_dict(nnx.state(BatchNorm(2), Statistic)))
        ['mean', 'var']
    """

    __signature__ = Signature()


def units_last(x: Shaped[Array, "..."], axis: int) -> Shaped[Array, "..."]:
    """The array, or its mask, with the units' axis as its last one."""
    return x if axis in (-1, x.ndim - 1) else jnp.moveaxis(x, axis, -1)


def sample_axes(x: Values) -> tuple[int, ...]:
    """All axes but the last, whose entries are the units."""
    return tuple(range(-x.ndim, -1))


def check_features(x: Values, num_features: int, axis: int = -1) -> None:
    """Raises ValueError for another size of ``axis``, which would broadcast where one is 1."""
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
    scale: Values | None = None,
    bias: Values | None = None,
    groups: int = 1,
    correction: tuple[Values | None, Values | None] = (None, None),
) -> Values:
    """Gamma ((x - mu) r / sqrt(var + eps) + d) + beta, of what is not None, in float32 or wider.

    Everything that belongs to a unit is put together first: of the array there is one subtraction,
    one product and one sum, and no quotient. r and d are the ``correction``.
    """
    r, d = correction
    wide = promote(x, *[p for p in (mean, variance, scale, bias, r, d) if p is not None])
    parts = split_groups(wide, groups) if groups > 1 else wide
    inverse = None if variance is None else inverse_deviation(promote(variance, wide), epsilon)
    rows = {
        name: None if values is None else promote(values, wide).reshape(-1, x.shape[-1])
        for name, values in {"inverse": inverse, "r": r, "d": d, "scale": scale}.items()
    }
    factor = _product(rows["inverse"], rows["r"], rows["scale"])
    if mean is not None:
        parts = parts - _per_group(mean, parts)
    if factor is not None:
        parts = parts * _per_group(factor, parts)
    if d is not None:
        parts = parts + _per_group(_product(rows["d"], rows["scale"]), parts)
    parts = parts.reshape(x.shape)
    return parts if bias is None else parts + _per_group(bias, parts)


def _product(*factors: Values | None) -> Values | None:
    """Of (groups or 1, units) tables that are there."""
    given = [factor for factor in factors if factor is not None]
    return functools.reduce(operator.mul, given) if given else None


def _per_group(values: Any, parts: Values) -> Values:
    """One value a unit, or a group and unit, with size 1 along the other axes of ``parts``."""
    table = promote(values, parts).reshape(-1, parts.shape[-1])
    if parts.ndim == 1:
        return table[0]
    return table.reshape(len(table), *[1] * (parts.ndim - 2), -1)


class Correction(NamedTuple):
    """The normalized value is multiplied by r, then d is added; None for a half there is not.

    Attributes:
        r: s_B / s, within [1 / r_max, r_max].
        d: (mu_B - mu) / s, within [-d_max, d_max].
    """

    r: Values | None
    d: Values | None


class Limits(NamedTuple):
    """How far one batch may be corrected; (1, 0) is batch normalization itself."""

    r_max: float
    d_max: float


def as_limits(given: Any) -> Limits | None:
    """``(r_max, d_max)``, or None for no renormalization. Raises for anything else."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(
            f"renormalize is {given!r}; wanted (r_max, d_max), (3.0, 5.0) for example, or None."
        )
    check_number(given[0], _AT_LEAST_ONE, "r_max for renormalize", "3.0 for example")
    check_number(given[1], NONNEGATIVE, "d_max for renormalize", "5.0 for example")
    return Limits(float(given[0]), float(given[1]))


def correction(
    batch: tuple[Values | None, Values | None],
    running: tuple[Values | None, Values | None],
    epsilon: float,
    limits: Limits,
) -> Correction:
    """What leads from a batch's mean and variance to the running ones, of no gradient.

    The batch's may have a leading axis of groups. Both deviations are of variance + epsilon, so
    that within the limits the result is what evaluation would make.
    """
    (mean, variance), (old_mean, old_variance) = jax.lax.stop_gradient((batch, running))
    inverse: Values | float = 1.0
    r = d = None
    if variance is not None and old_variance is not None:
        inverse = _like(inverse_deviation(old_variance, epsilon), variance)
        r = jnp.clip(inverse / inverse_deviation(variance, epsilon), 1 / limits.r_max, limits.r_max)
    if mean is not None and old_mean is not None:
        d = jnp.clip((mean - _like(old_mean, mean)) * inverse, -limits.d_max, limits.d_max)
    return Correction(r, d)


def _like(values: Values, batch: Values) -> Values:
    """One value a unit, in the rank and type of the batch's."""
    return values.astype(batch.dtype).reshape(*[1] * (batch.ndim - 1), -1)
