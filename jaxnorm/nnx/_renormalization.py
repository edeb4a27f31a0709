"""Batch renormalization: what leads from a batch's statistics to the running ones."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._checks import NONNEGATIVE, Range, check_number
from jaxnorm.reparam._fold import inverse_deviation

Values = Float[Array, "..."]

_AT_LEAST_ONE = Range("a number of at least 1", 1)


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
