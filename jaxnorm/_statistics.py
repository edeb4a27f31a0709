"""Sample moments of activations: grouped, pooled across devices, and merged over minibatches."""

import functools
import math
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxnorm._axes import fan_in_size, negative_axes
from jaxnorm._node import Axes
from jaxnorm._numerics import ROUNDING_ERRORS, nonzero, promote, rounding_floor

Values = Float[Array, "..."]

#: The provisional mean is an average of more values than this, if the sample has more.
SMALL_COUNT = 32


class Moments(NamedTuple):
    """Mean, variance and size of a sample: all that is needed to merge it with another sample.

    Attributes:
        mean: one value per unit, in float32 or wider whatever the type of the data.
        variance: biased (divided by the count), never negative; of the same shape.
        size: the number of values behind each mean: a scalar, or one per unit if there is a mask.
    """

    mean: Values
    variance: Values
    size: Values


def batch_moments(
    x: Values,
    axes: int | Iterable[int],
    *,
    axis_name: Hashable | None = None,
    groups: int = 1,
    where: Any = None,
) -> Moments:
    """Mean and biased variance of ``x`` over ``axes``, per unit of the remaining axes.

    The sums of x - c and (x - c)^2 are taken together, where c is the mean over the samples at the
    middle position. An offset of any size therefore cancels before anything is squared, and
    outliers cost no accuracy: one pass over data with positions. Data without positions, up to 32
    values, and masked data are read twice, and c is the mean itself.

    Args:
        x: activations of any floating type.
        axes: the axes of samples and positions: (0,) for (batch, units), (0, 1, 2) for a channel of
            (batch, height, width, channels).
        axis_name: under pmap or shard_map, the mapped axis (or axes) over which the samples of all
            devices are pooled, exactly, in a single all-reduce.
        groups: splits the first of ``axes`` into this many contiguous groups (ghost batches), each
            with its own statistics.
        where: a mask that broadcasts to ``x``, True for the values that count; None for all. The
            remaining values may be infinite or NaN: they change no statistic and no gradient.

    Returns:
        `Moments` in float32 or wider: mean and variance of shape (units,) or (groups, units) if
        ``groups`` > 1, and the number of values behind each, of the same shape if there is a mask.
        A unit without values (as of an empty batch) has mean, variance and size 0. The variance is
        never negative; for a single value or a constant channel it is 0 with gradient 0. An
        infinite or NaN value makes its own unit (and group) NaN, and no other.

    Raises:
        ValueError: for axes that the array does not have, groups that do not divide the batch, and
            for ``groups`` together with ``axis_name``, which leaves open whose groups are pooled.
        TypeError: for activations that are not real floating-point numbers.

    Under pmap and shard_map without ``axis_name`` the statistics are those of each device's own
    samples. Under jit they are those of the whole batch, however it is sharded, at two all-reduces
    (one for c, one for the sums). With as many groups as devices, or a multiple of it, each device
    needs its own samples only and nothing is communicated. Groups that are not aligned with the
    devices move data, and are an error with explicit axes.

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
    mask = None if where is None else broadcast_mask(where, x)
    if groups != 1:
        if axis_name is not None:
            raise ValueError(
                f"got groups={groups} and axis_name={axis_name!r}; wanted one of them: groups of "
                "each device's samples, or the samples of all devices pooled."
            )
        # Negative axes of the whole are negative axes of each group.
        wide, mask = jax.tree.map(
            lambda array: split_groups(array, groups, sample_axes[0]), (wide, mask)
        )
    local, count = _local_moments(wide, sample_axes, mask)
    if axis_name is not None:
        return _pooled(local, count, axis_name)
    shift, offset, variance = local
    return Moments(shift + offset, variance, jnp.asarray(count, wide.dtype))


def split_groups(x: Any, groups: int, axis: int = 0) -> Any:
    """Splits ``axis`` into (groups, samples per group) and moves the groups to the front.

    A view that moves no data if groups are aligned with the shards of the batch. Raises ValueError
    for groups that do not divide the batch.
    """
    samples = x.shape[axis]
    if groups < 1 or samples % groups:
        raise ValueError(
            f"groups={groups} does not divide the {samples} samples of an array of shape "
            f"{tuple(x.shape)}; wanted a positive divisor. Drop the last incomplete batch, or "
            "choose another number of groups."
        )
    place = axis % x.ndim
    shape = (*x.shape[:place], groups, samples // groups, *x.shape[place + 1 :])
    return jnp.moveaxis(x.reshape(shape), place, 0)


def broadcast_mask(where: Any, x: Values) -> Bool[Array, "..."]:
    """Mask in the shape of the data. Raises TypeError for other types than bool."""
    mask = jnp.asarray(where)
    if mask.dtype != jnp.bool_:
        raise TypeError(
            f"the mask is of type {mask.dtype}; wanted truth values, True for the values that "
            "count: mask.astype(bool) of zeros and ones."
        )
    return jnp.broadcast_to(mask, x.shape)


def _local_moments(
    wide: Values, axes: Axes, mask: Bool[Array, "..."] | None
) -> tuple[tuple[Values, Values, Values], int | Values]:
    """A shift c, the mean less c, and the biased variance; and the count of values.

    Any constant c gives the same moments and gradients, which cancel little if c is near the data.
    The sum of the mean's two parts would lose digits to a large offset. Without values all are 0.
    """
    count: Any = fan_in_size(wide, axes) if mask is None else mask.astype(wide.dtype).sum(axes)
    divisor = max(count, 1) if mask is None else jnp.maximum(count, 1)

    def kept(values: Values) -> Values:
        return values if mask is None else jnp.where(mask, values, 0)

    def average(values: Values) -> Values:
        return values.sum(axes) / divisor

    if mask is None:
        shift = _provisional_mean(wide, axes)
    else:
        shift = jnp.expand_dims(average(kept(wide)), axes)
    shift = jax.lax.stop_gradient(shift)
    # A masked NaN is replaced before it is squared, whose derivative would be NaN.
    shifted = kept(wide - shift)
    # One array, so that devices share one all-reduce.
    offset, square = jnp.stack([average(shifted), average(jnp.square(shifted))])
    return (shift.squeeze(axes), offset, jnp.maximum(square - jnp.square(offset), 0)), count


def _provisional_mean(wide: Values, axes: Axes) -> Values:
    """Mean over part of each unit's values, with the sample axes kept as axes of size 1.

    The part is the middle position of all samples, or more positions if the samples are few. Single
    values would not do: a padded corner of an image, or a sample that fills up a batch, may be far
    from all others. An axis that is sharded with explicit axes cannot be sliced.
    """
    sharding, count = jax.typeof(wide).sharding.spec, fan_in_size(wide, axes)
    index = [slice(None)] * wide.ndim
    for axis in reversed(axes[1:]):
        size = wide.shape[axis]
        if count > SMALL_COUNT * size and sharding[axis] is None:
            index[axis] = slice(size // 2, size // 2 + 1)
            count //= size
    return wide[tuple(index)].sum(axes, keepdims=True) / max(count, 1)


def _pooled(local: tuple[Values, ...], count: int | Values, axis_name: Hashable) -> Moments:
    """Moments of the samples of all devices, from each device's shift, offset, variance and count.

    The devices sum a table of which each writes its own row: the smaller sums of x and x^2 would
    cancel, and a common shift for them would cost another all-reduce.
    """
    devices = jax.lax.axis_size(axis_name)
    own = jnp.stack([*local, jnp.broadcast_to(jnp.asarray(count, local[0].dtype), local[0].shape)])
    is_own = jnp.arange(devices).reshape(-1, *[1] * own.ndim) == jax.lax.axis_index(axis_name)
    table = jax.lax.psum(jnp.where(is_own, own[None], 0), axis_name)
    shifts, offsets, variances, counts = jnp.unstack(table, axis=1)
    total = counts.sum(0)
    weights = counts / jnp.maximum(total, 1)[None]
    # Relative to one shift, so that an offset cancels before anything is squared.
    shift = (weights * shifts).sum(0)
    means = shifts - shift[None] + offsets
    mean = (weights * means).sum(0)
    variance = (weights * (variances + jnp.square(means - mean[None]))).sum(0)
    size = jnp.asarray(count * devices, mean.dtype) if isinstance(count, int) else total
    return Moments(shift + mean, variance, size)


def merge_moments(first: Moments, second: Moments) -> Moments:
    """Moments of the union of two samples, exactly, whatever their sizes.

    With w = n2 / (n1 + n2) and d = m2 - m1: the mean is m1 + w d, the variance (1 - w) v1 + w v2 +
    w (1 - w) d^2. Merging is associative and commutative to rounding, so it may be folded over
    minibatches, scanned, or reduced in a tree; moments of size 0 are its neutral element.

    Args:
        first: moments of one sample.
        second: moments of the same units on another sample.

    Returns:
        The merged moments. Two empty samples merge to an empty sample of mean 0, variance 0 and
        size 0, never to NaN.

    Elementwise in the units, also under jit, pmap and shard_map, where the ``axis_name`` of
    `batch_moments` merges across devices.

    Example:
        >>> x = jnp.arange(6.0)
        >>> merged = merge_moments(batch_moments(x[:1], 0), batch_moments(x[1:], 0))
        >>> [round(float(value), 4) for value in merged]
        [2.5, 2.9167, 6.0]

    Source: Chan, Golub and LeVeque 1983, Eqs. 1.5.
    """
    size = first.size + second.size
    weight = second.size / jnp.maximum(size, 1)
    difference = second.mean - first.mean
    mean = first.mean + weight * difference
    # Each weight by its own difference: a square that overflows times a weight of 0 would be NaN.
    between = (weight * difference) * ((1 - weight) * difference)
    variance = (1 - weight) * first.variance + weight * second.variance + between
    return Moments(mean, variance, size)


def population_statistics(
    batches: Iterable[PyTree], axes: int | Iterable[int] | None = None
) -> PyTree:
    """Moments of the samples of all minibatches together, exactly, in constant memory.

    Minibatches of different sizes are merged by their sizes, never by averaging means.

    Args:
        batches: arrays, or pytrees of arrays (one for each layer), all of one structure. A
            generator is consumed.
        axes: the axes of samples and positions in every array, or None for all but the last: a unit
            is then a channel, for (batch, units) and (batch, height, width, channels) alike.

    Returns:
        `Moments` in the place of each array, in float32 or wider; the variance is biased.

    Raises:
        ValueError: if there is no minibatch, or for axes that an array does not have.

    Each minibatch is one call of a compiled function: inside jit fold `merge_moments` over
    `batch_moments` with ``jax.lax.scan`` instead. A sharded minibatch counts as a whole; under pmap
    and shard_map use the ``axis_name`` of `batch_moments`.

    Example:
        >>> import jax.numpy as jnp
        >>> batches = [{"dense": jnp.zeros((3, 2))}, {"dense": jnp.full((1, 2), 4.0)}]
        >>> moments = population_statistics(batches)["dense"]
        >>> moments.mean.tolist(), moments.variance.tolist(), int(moments.size)
        ([1.0, 1.0], [3.0, 3.0], 4)

    Source: Luo et al. 2019, section 5 (population normalization, from 10,000 samples); Chan, Golub
    and LeVeque 1983 for the merge.
    """
    total = None
    for batch in batches:
        total = _merged(total, batch, tuple(axes) if isinstance(axes, Iterable) else axes)
    if total is None:
        raise ValueError("got no minibatch; wanted at least one to take statistics of.")
    return total


@functools.partial(jax.jit, static_argnames="axes")
def _merged(total: PyTree, batch: PyTree, axes: int | tuple[int, ...] | None) -> PyTree:
    """Moments ``total`` of earlier minibatches, merged with those of one more."""

    def moments(x: Values) -> Moments:
        return batch_moments(x, range(x.ndim - 1) if axes is None else axes)

    latest = jax.tree.map(moments, batch)
    if total is None:
        return latest
    return jax.tree.map(merge_moments, total, latest, is_leaf=lambda x: isinstance(x, Moments))


def independent_positions(
    x: Float[Array, "samples *positions units"], *, axis_name: Hashable | None = None
) -> Float[Array, " units"]:
    """Effective number of independent positions per sample.

    The variance of a unit's values over the variance of its samples' means: P for P independent
    positions, 1 for positions that are all equal. A batch of N images determines a channel's mean
    as well as N times this many independent values do.

    Args:
        x: activations, (samples, *positions, units).
        axis_name: under pmap or shard_map, the mapped axis (or axes) over which the samples of all
            devices are taken together, in two all-reduces.

    Returns:
        One value per unit from 1 to P, in float32 or wider; P for a unit without variance and for a
        single sample. An infinite or NaN value makes its own unit NaN.

    Raises:
        TypeError: for activations that are not real floating-point numbers.

    Without ``axis_name`` each device uses its own samples under pmap and shard_map, and all samples
    under jit, however they are sharded.

    Example:
        >>> equal = jnp.array([[1.0, 1.0], [-1.0, -1.0]])[..., None]
        >>> independent_positions(equal).tolist()
        [1.0]

    Source: ours; the ``batch_size`` of `gamma_decay_strength` counts independent values.
    """

    def across_devices(averages: Any) -> Any:
        return averages if axis_name is None else jax.lax.pmean(averages, axis_name)

    wide, count = promote(x), math.prod(x.shape[1:-1])
    positions = tuple(range(1, x.ndim - 1))
    deviation = wide - across_devices(wide.mean((0, *positions), keepdims=True))
    sample_means = deviation.mean(positions)
    total = jnp.square(deviation).mean((0, *positions))
    averages = total, jnp.square(sample_means).mean(0), sample_means.mean(0)
    variance, between, error = across_devices(averages)
    # The rounding error of the mean, common to all samples and large for a large offset.
    variance, between = variance - jnp.square(error), between - jnp.square(error)
    resolution = float(jnp.finfo(wide.dtype).eps) * ROUNDING_ERRORS
    is_zero = between <= variance * resolution
    ratio = jnp.where(is_zero, count, variance / nonzero(between, is_zero))
    return jnp.clip(ratio, 1, count)


def kurtosis(x: Float[Array, "..."], axes: int | Iterable[int]) -> Float[Array, "..."]:
    """Fourth moment about the mean over the squared variance, m4 / m2^2: 3 for a Gaussian.

    The least value is 1, of two points of equal probability. The batch normalization paper's excess
    kurtosis rho is this value minus 3.

    Args:
        x: activations of any floating type.
        axes: the axes of samples and positions.

    Returns:
        One value per unit, in float32 or wider, from biased moments. A constant unit (to rounding)
        has no kurtosis; the result is 3, a Gaussian's, with gradient 0, so that a metric or a
        strength made of it stays finite. An infinite or NaN value makes its own unit NaN.

    Raises:
        ValueError: for axes that the array does not have.
        TypeError: for activations that are not real floating-point numbers.

    Under pmap and shard_map each device uses its own sample (kurtoses cannot be averaged); under
    jit the whole array, however it is sharded, at four all-reduces.

    Example:
        >>> kurtosis(jnp.array([[1.0, 5.0], [-1.0, 5.0]]), 0).tolist()
        [1.0, 3.0]

    Source: Littwin and Wolf 2018, section 2.
    """
    sample_axes = negative_axes(axes, x.ndim, "the array of activations")
    wide = promote(x)
    mean = wide.mean(sample_axes, keepdims=True)
    deviation = wide - mean
    deviation = deviation - deviation.mean(sample_axes, keepdims=True)
    variance = jnp.square(deviation).mean(sample_axes, keepdims=True)
    is_constant = (variance <= rounding_floor(mean)) & jnp.isfinite(variance)
    # A constant for the gradient, as the kurtosis does not depend on the scale: powers of small and
    # large deviations neither vanish nor overflow.
    scale = jax.lax.stop_gradient(jnp.sqrt(nonzero(variance, is_constant)))
    square = jnp.square(deviation / scale)
    second, fourth = square.mean(sample_axes), jnp.square(square).mean(sample_axes)
    is_constant = is_constant.squeeze(sample_axes)
    return jnp.where(is_constant, 3, fourth / jnp.square(nonzero(second, is_constant)))
