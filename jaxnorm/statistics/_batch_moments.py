"""The mean and variance of a batch: of groups of it, or of all devices' batches together."""

from collections.abc import Hashable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from jaxnorm._axes import fan_in, negative_axes
from jaxnorm._unit import widen
from jaxnorm.statistics._groups import split_groups
from jaxnorm.statistics._moments import Moments
from jaxnorm.statistics._shifted_moments import Values, shifted_moments


def batch_moments(
    x: Values, axes: int | Iterable[int], *, axis_name: Hashable | None = None, groups: int = 1
) -> Moments:
    """The mean and the biased variance of ``x`` over ``axes``, for the other axes' units.

    Sums of x - c and (x - c)^2 together, where c is the mean over the samples at the middle
    position, so that an offset of any size cancels before anything is squared, and untypical values
    cost no accuracy: one pass over data with positions. Data without positions, up to 32 values,
    and sample axes that are sharded with explicit axes are read twice, and c is the mean itself.

    Args:
        x: activations of any floating type.
        axes: the axes of samples and positions: (0,) for (batch, units), (0, 1, 2) for a channel of
            (batch, height, width, channels).
        axis_name: under pmap or shard_map, the mapped axis (or axes) whose devices' samples are
            pooled: by their counts, means and variances, exactly, in a single all-reduce.
        groups: the first of ``axes`` is seen as so many contiguous parts (ghost batches), each with
            statistics of its own.

    Returns:
        `Moments` in float32 or wider: mean and variance of the shape of one value a unit, with a
        leading axis of groups if ``groups`` > 1, and the number of values behind each. The variance
        is never negative; of a single value, and of a constant channel, it is 0 with gradient 0. An
        infinite or NaN value makes its own unit (and group) NaN, and no other.

    Raises:
        ValueError: for axes that the array does not have, groups that do not divide the batch, and
            for ``groups`` together with ``axis_name``: whose groups would be pooled is ambiguous.
        TypeError: for activations that are not real floating-point numbers.

    Under pmap and shard_map without ``axis_name`` the statistics are each device's own. Under jit
    the batch is the whole batch, however it is sharded, at two all-reduces (one for c, one for the
    sums); with as many groups as devices, or a multiple of it, each device needs its own samples
    only, and nothing is communicated: the same numbers as the devices' own. Groups that are not
    aligned with the devices move data, and are an error with explicit axes.

    Example:
        >>> x = jnp.array([[1.0, 2.0], [3.0, 2.0], [5.0, 2.0], [7.0, 4.0]])
        >>> mean, variance, size = batch_moments(x, 0)
        >>> mean.tolist(), variance.tolist(), int(size)
        ([4.0, 2.5], [5.0, 0.75], 4)
        >>> batch_moments(x, 0, groups=2).mean.tolist()
        [[2.0, 2.0], [6.0, 3.0]]

    Source: Ioffe and Szegedy 2015, Algorithm 1; Chan, Golub and LeVeque 1983 for the pooling;
    Hoffer et al. 2017 for ghost batches.
    """
    sample_axes = negative_axes(axes, x.ndim, "the array of activations")
    wide = widen(x)
    if groups == 1:
        return _pooled(shifted_moments(wide, sample_axes), fan_in(wide, sample_axes), axis_name)
    if axis_name is not None:
        raise ValueError(
            f"got groups={groups} and axis_name={axis_name!r}; wanted one of them. Groups are of "
            "this device's samples: leave axis_name out. To pool all devices, leave groups out."
        )
    parts = split_groups(wide, groups, sample_axes[0])
    # The axes are negative, so they are still the axes of samples and positions of each part.
    return _pooled(shifted_moments(parts, sample_axes), fan_in(parts, sample_axes), None)


def _pooled(local: tuple[Values, Values, Values], size: int, axis_name: Any) -> Moments:
    """The moments of all devices' samples, from one sum over devices of a table of their own.

    Each device writes its own three numbers into its row. The sums of x and x^2 would be smaller,
    but cancel; and a common shift for them would cost another round.
    """
    shift, offset, variance = local
    if axis_name is None:
        return _moments(shift + offset, variance, size)
    devices = jax.lax.axis_size(axis_name)
    mine = jnp.stack([shift, offset, variance])[None]
    row = jnp.arange(devices).reshape(-1, *[1] * (mine.ndim - 1)) == jax.lax.axis_index(axis_name)
    shifts, offsets, variances = jnp.moveaxis(
        jax.lax.psum(jnp.where(row, mine, 0), axis_name), 1, 0
    )
    # Relative to the first device's shift, so that an offset cancels before anything is squared.
    means = shifts - shifts[:1] + offsets
    mean = means.mean(0)
    between = jnp.square(means - mean[None]).mean(0)
    return _moments(shifts[0] + mean, variances.mean(0) + between, size * devices)


def _moments(mean: Values, variance: Values, size: int) -> Moments:
    return Moments(mean, variance, jnp.asarray(size, mean.dtype))
