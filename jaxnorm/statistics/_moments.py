"""Mean, variance and size of a sample as one value, and the exact merges of several."""

from collections.abc import Hashable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Values = Float[Array, "..."]


class Moments(NamedTuple):
    """What a sample says of its distribution, so that samples can be merged.

    Attributes:
        mean: one value a unit, in float32 or wider whatever the type of the data.
        variance: biased (divided by the count, not by one less), never negative; of the same shape.
        size: the number of values behind each mean: a scalar, or of a masked sample one a unit.
    """

    mean: Values
    variance: Values
    size: Values


def merge_moments(first: Moments, second: Moments) -> Moments:
    """The moments of two samples taken together, exactly, whatever their sizes.

    With w = n2 / (n1 + n2) and d = m2 - m1: the mean is m1 + w d, the variance (1 - w) v1 + w v2 +
    w (1 - w) d^2. Merging is associative and commutative to rounding, so it may be folded over
    minibatches, scanned, or reduced in a tree; moments of size 0 are its neutral element.

    Args:
        first: moments of one sample.
        second: moments of the same units on another.

    Returns:
        The merged moments. Two empty samples merge to an empty one: mean 0, variance 0, size 0, if
        they had these; never NaN.

    Raises:
        ValueError: for moments of different numbers of units.

    Elementwise in the units: it means the same under jit, pmap and shard_map. Merging across
    devices is what the ``axis_name`` of `batch_moments` is for.

    Example:
        >>> from jaxnorm.statistics import batch_moments
        >>> x = jnp.arange(6.0)
        >>> merged = merge_moments(batch_moments(x[:1], 0), batch_moments(x[1:], 0))
        >>> [round(float(value), 4) for value in merged]
        [2.5, 2.9167, 6.0]

    Source: Chan, Golub and LeVeque 1983, Eqs. 1.5.
    """
    if first.mean.shape != second.mean.shape:
        raise ValueError(
            f"got moments of units of shape {first.mean.shape} and {second.mean.shape}; wanted the "
            "same units in both: take them of the same layer, over the same axes."
        )
    size = first.size + second.size
    # An empty union has no weights: let its parts count as they are, with no division by zero.
    weight = second.size / jnp.maximum(size, 1)
    difference = second.mean - first.mean
    mean = first.mean + weight * difference
    # Each weight by its own difference: a square that overflows times a weight of 0 would be NaN.
    between = (weight * difference) * ((1 - weight) * difference)
    variance = (1 - weight) * first.variance + weight * second.variance + between
    return Moments(mean, variance, size)


def pooled(
    local: tuple[Values, ...], size: int | Values, axis_name: Hashable | None = None
) -> Moments:
    """The moments from each device's shift c, mean less c, biased variance, and size.

    One sum over devices of a table, of which each device writes its own row. The sums of x and x^2
    would be smaller, but cancel; and a common shift for them would cost another round. An ``int``
    is every device's size, and stays out of the table.
    """
    shift, offset, variance = local
    if axis_name is None:
        return _moments(shift + offset, variance, size)
    devices = jax.lax.axis_size(axis_name)
    mine = jnp.stack([*local, *([] if isinstance(size, int) else [size])])[None]
    row = jnp.arange(devices).reshape(-1, *[1] * (mine.ndim - 1)) == jax.lax.axis_index(axis_name)
    shifts, offsets, variances, *sizes = jnp.moveaxis(
        jax.lax.psum(jnp.where(row, mine, 0), axis_name), 1, 0
    )
    total = size * devices if isinstance(size, int) else sizes[0].sum(0)
    if sizes:
        weights = sizes[0] / jnp.maximum(total, 1)[None]
    else:
        weights = jnp.full_like(shifts, 1 / devices)
    return _combined(shifts, offsets, variances, weights, total)


def _combined(
    shifts: Values, offsets: Values, variances: Values, weights: Values, total: int | Values
) -> Moments:
    """Of samples along axis 0, by their parts of the whole."""
    # Relative to one shift, so that an offset cancels before anything is squared.
    shift = (weights * shifts).sum(0)
    means = shifts - shift[None] + offsets
    mean = (weights * means).sum(0)
    around = variances + jnp.square(means - mean[None])
    return _moments(shift + mean, (weights * around).sum(0), total)


def _moments(mean: Values, variance: Values, size: int | Values) -> Moments:
    return Moments(mean, variance, jnp.asarray(size, mean.dtype))
