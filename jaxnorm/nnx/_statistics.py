"""Statistics of activations as state, and normalizing with them."""

from typing import Any

from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._unit import widen
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


def sample_axes(x: Values) -> tuple[int, ...]:
    """All axes but the last, whose entries are the units."""
    return tuple(range(-x.ndim, -1))


def check_features(x: Values, num_features: int) -> None:
    """Raises ValueError for another last axis, which would broadcast where one of them is 1."""
    if x.shape[-1:] != (num_features,):
        raise ValueError(
            f"got activations of shape {tuple(x.shape)}; wanted (batch, ..., {num_features}), as "
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
) -> Values:
    """Gamma (x - mu) / sqrt(var + eps) + beta, of what is not None, in float32 or wider.

    Everything that belongs to a unit is put together first: of the array there is one subtraction,
    one product and one sum, and no quotient.
    """
    given = [p for p in (mean, variance, scale, bias) if p is not None]
    wide = widen(x, *given)
    parts = split_groups(wide, groups) if groups > 1 else wide
    factor = None if scale is None else widen(scale, wide)
    if variance is not None:
        inverse = inverse_deviation(widen(variance, wide), epsilon)
        factor = inverse if factor is None else inverse * factor.reshape(*_ones(inverse), -1)
    if mean is not None:
        parts = parts - _per_group(mean, parts, groups)
    if factor is not None:
        parts = parts * _per_group(factor, parts, groups if variance is not None else 1)
    parts = parts.reshape(x.shape)
    return parts if bias is None else parts + widen(bias, wide).reshape(*_ones(parts), -1)


def _ones(values: Values) -> tuple[int, ...]:
    return (1,) * (values.ndim - 1)


def _per_group(values: Values, parts: Values, groups: int) -> Values:
    """One value a unit, or a group and unit, with size 1 along the other axes of ``parts``."""
    leading = () if groups == 1 else (groups,)
    ones = (1,) * (parts.ndim - len(leading) - 1)
    return widen(values, parts).reshape(*leading, *ones, -1)
