"""Mean and variance of one device's sample in float32 or wider, without cancellation."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxnorm._trees._axes import fan_in, unit_shape
from jaxnorm._trees._node import Axes

Values = Float[Array, "..."]

#: Up to this many values the data are read twice; a mean of more than so many is near the data.
SMALL_COUNT = 32


def split_groups(x: Any, groups: int, axis: int = 0) -> Any:
    """``x`` with ``axis`` as (groups, samples a group), the groups moved to the front.

    A view, and where the groups are aligned with the shards of the batch it moves no data. Raises
    ValueError for groups that do not divide the batch.
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


def own_moments(wide: Values, mask: Any, axes: Axes) -> tuple[tuple[Values, ...], Any]:
    """A shift c, the mean less c, and the biased variance; and the size, per unit if masked."""
    if mask is not None:
        *moments, count = masked_moments(wide, mask, axes)
        return tuple(moments), count
    size = fan_in(wide, axes)
    nothing = jnp.zeros(unit_shape(wide, axes), wide.dtype)
    return shifted_moments(wide, axes) if size else (nothing,) * 3, size


def shifted_moments(wide: Values, axes: Axes) -> tuple[Values, Values, Values]:
    """A shift c, the mean less c, and the biased variance, of wide data over negative axes.

    The mean is left in two parts: their sum would lose the digits that a large offset takes.
    Whatever c is, the sums of x - c and (x - c)^2 give the same moments and gradients, and cancel
    little if it is near the data. It is the mean itself, at a second pass, where the data are few,
    and where the sample axes are sharded with explicit axes, of which no part can be sliced out.
    """
    few = fan_in(wide, axes) <= SMALL_COUNT or _is_sharded(wide, axes)
    near = wide.mean(axes, keepdims=True) if few else _near_the_mean(wide, axes)
    shift = jax.lax.stop_gradient(near)
    shifted = wide - shift
    # One array, so that devices share one all-reduce.
    offset, square = jnp.stack([shifted.mean(axes), jnp.square(shifted).mean(axes)])
    return shift.squeeze(axes), offset, jnp.maximum(square - jnp.square(offset), 0)


def _near_the_mean(wide: Values, axes: Axes) -> Values:
    """The mean of a part of each unit's values, with the sample axes kept as axes of size 1.

    The part is all samples at the middle position, or more of the positions where samples are few.
    Not single values: a padded corner of an image, or a sample that fills up a batch, may be far
    from all the others. Without positions the part is the whole, which is then read twice.
    """
    averaged = next(n for n in range(1, len(axes) + 1) if fan_in(wide, axes[:n]) > SMALL_COUNT)
    index = [slice(None)] * wide.ndim
    for axis in axes[averaged:]:
        middle = wide.shape[axis] // 2
        index[axis] = slice(middle, middle + 1)
    return wide[tuple(index)].mean(axes, keepdims=True)


def _is_sharded(wide: Values, axes: Axes) -> bool:
    specification = jax.typeof(wide).sharding.spec
    return any(specification[axis] is not None for axis in axes)


def masked_moments(
    wide: Values, mask: Bool[Array, "..."], axes: Axes
) -> tuple[Values, Values, Values, Values]:
    """A shift c, the mean less c, the biased variance, and the count, of wide data over axes.

    As `shifted_moments`, with c the mean itself, at a second pass. All are 0 where the mask leaves
    nothing. A masked value has no part in them, whatever it is, nor a gradient.
    """
    count = mask.astype(wide.dtype).sum(axes, keepdims=True)
    weight = 1 / jnp.maximum(count, 1)
    shift = jax.lax.stop_gradient(jnp.where(mask, wide, 0).sum(axes, keepdims=True) * weight)
    shifted = jnp.where(mask, wide - shift, 0)
    offset, square = (x.sum(axes, keepdims=True) * weight for x in (shifted, jnp.square(shifted)))
    variance = jnp.maximum(square - jnp.square(offset), 0)
    shift, offset, variance, count = (x.squeeze(axes) for x in (shift, offset, variance, count))
    return shift, offset, variance, count


def mask_like(where: Any, x: Values) -> Bool[Array, "..."]:
    """The mask at the shape of the data. Raises for what is no mask of it."""
    mask = jnp.asarray(where)
    if mask.dtype != jnp.bool_:
        raise TypeError(
            f"the mask is of type {mask.dtype}; wanted truth values, True for what counts: "
            "mask.astype(bool) of zeros and ones."
        )
    return jnp.broadcast_to(mask, x.shape)
