"""Statistics of activations as state, and normalizing with them."""

import functools
import operator
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Shaped

from jaxnorm._numerics import promote
from jaxnorm.reparam._fold import inverse_deviation
from jaxnorm.statistics._groups import split_groups

Values = Float[Array, "..."]


class Statistic(nnx.Variable[Any]):
    """A mean or a variance that a layer keeps: not a parameter, never trained.

    Example:
        >>> from jaxnorm.nnx import BatchNorm
        >>> sorted(nnx.to_pure_dict(nnx.state(BatchNorm(2), Statistic)))
        ['mean', 'var']
    """


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
