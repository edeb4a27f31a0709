"""Statistics of activations as state, and normalizing with them."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._unit import widen
from jaxnorm.statistics import Moments
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
    moments: Moments,
    epsilon: float,
    *,
    use_mean: bool = True,
    use_variance: bool = True,
    groups: int = 1,
) -> Values:
    """(x - mu) / sqrt(var + eps), or one half of it, in float32 or wider."""
    wide = widen(x, moments.mean)
    parts = split_groups(wide, groups) if groups > 1 else wide
    if use_mean:
        parts = parts - _per_group(moments.mean, parts, groups)
    if use_variance:
        squared = _per_group(moments.variance, parts, groups) + epsilon
        # Without epsilon a constant unit would be 0/0: it stays 0. NaN is not 0, and stays seen.
        parts = parts / jnp.sqrt(jnp.where(squared == 0, 1, squared))
    return parts.reshape(x.shape)


def affine(x: Values, scale: Any, bias: Any) -> Values:
    """Gamma x + beta along the last axis; None leaves a part out."""
    shape = (1,) * (x.ndim - 1) + (-1,)
    x = widen(x, *(p for p in (scale, bias) if p is not None))
    if scale is not None:
        x = x * widen(scale, x).reshape(shape)
    return x if bias is None else x + widen(bias, x).reshape(shape)


def _per_group(values: Values, parts: Values, groups: int) -> Values:
    """One value a unit, or a group and unit, with size 1 along the other axes of ``parts``."""
    leading = () if groups == 1 else (groups,)
    ones = (1,) * (parts.ndim - len(leading) - 1)
    return widen(values, parts).reshape(*leading, *ones, -1)
