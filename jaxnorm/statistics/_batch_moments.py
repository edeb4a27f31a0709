"""The mean and variance of a batch: of groups of it, or of all devices' batches together."""

from collections.abc import Hashable, Iterable
from typing import Any

from jaxnorm._numerics import promote
from jaxnorm._trees._axes import negative_axes
from jaxnorm.statistics._moments import Moments, pooled
from jaxnorm.statistics._own_moments import Values, mask_like, own_moments, split_groups


def batch_moments(
    x: Values,
    axes: int | Iterable[int],
    *,
    axis_name: Hashable | None = None,
    groups: int = 1,
    where: Any = None,
) -> Moments:
    """The mean and the biased variance of ``x`` over ``axes``, for the other axes' units.

    The function sums x - c and (x - c)^2 together, where c is the mean over the samples at the
    middle position, so that an offset of any size cancels before anything is squared, and untypical
    values cost no accuracy: one pass over data with positions. Data without positions, up to 32
    values, and sample axes that are sharded with explicit axes are read twice, and c is the mean
    itself.

    Args:
        x: activations of any floating type.
        axes: the axes of samples and positions: (0,) for (batch, units), (0, 1, 2) for a channel of
            (batch, height, width, channels).
        axis_name: under pmap or shard_map, the mapped axis (or axes) whose devices' samples are
            pooled: by their counts, means and variances, exactly, in a single all-reduce.
        groups: the first of ``axes`` is seen as so many contiguous parts (ghost batches), each with
            statistics of its own.
        where: a mask that broadcasts to ``x``, True for the values that count; None for all. They
            are read twice, and counted unit by unit, group by group and device by device.

    Returns:
        `Moments` in float32 or wider: mean and variance of the shape of one value a unit, with a
        leading axis of groups if ``groups`` > 1, and the number of values behind each, of their
        shape if there is a mask; a unit without any (as of an empty batch) has mean, variance and
        size 0. The variance is never negative; of a single value, and of a constant channel, it is
        0 with gradient 0. An infinite or NaN value makes its own unit (and group) NaN, and no
        other.

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
        >>> import jax.numpy as jnp
        >>> x = jnp.array([[1.0, 2.0], [3.0, 2.0], [5.0, 2.0], [7.0, 4.0]])
        >>> mean, variance, size = batch_moments(x, 0)
        >>> mean.tolist(), variance.tolist(), int(size)
        ([4.0, 2.5], [5.0, 0.75], 4)
        >>> batch_moments(x, 0, groups=2).mean.tolist()
        [[2.0, 2.0], [6.0, 3.0]]
        >>> batch_moments(x, 0, where=x < 6).mean.tolist()
        [3.0, 2.5]

    Source: Ioffe and Szegedy 2015, Algorithm 1; Chan, Golub and LeVeque 1983 for the pooling;
    Hoffer et al. 2017 for ghost batches.
    """
    sample_axes = negative_axes(axes, x.ndim, "the array of activations")
    wide = promote(x)
    mask = None if where is None else mask_like(where, wide)
    if groups == 1:
        return pooled(*own_moments(wide, mask, sample_axes), axis_name)
    if axis_name is not None:
        raise ValueError(
            f"got groups={groups} and axis_name={axis_name!r}; wanted one of them. Groups are of "
            "this device's samples: leave axis_name out. To pool all devices, leave groups out."
        )
    parts = split_groups(wide, groups, sample_axes[0])
    masks = None if mask is None else split_groups(mask, groups, sample_axes[0])
    # The axes are negative, so they are still the axes of samples and positions of each part.
    return pooled(*own_moments(parts, masks, sample_axes), None)
