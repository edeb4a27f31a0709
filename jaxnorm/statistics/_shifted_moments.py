"""Mean and variance of one sample in float32 or wider, without cancellation."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._trees._axes import fan_in
from jaxnorm._trees._node import Axes

Values = Float[Array, "..."]

#: Up to this many values the data are read twice; a mean of more than so many is near the data.
SMALL_COUNT = 32

#: As many values are added in a row at most: the rounding errors of a sum of squares add up.
IN_A_ROW = 2**14


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
    rest = axes[1:]
    # The positions of a sample in one reduction; samples by an ordinary one, which devices share.
    ordinary = few or not rest or any(wide.shape[axis] > IN_A_ROW for axis in rest)
    sums = (shifted, jnp.square(shifted)) if ordinary else _sums(shifted, rest)
    offset, square = jnp.stack(sums).sum(axes) / fan_in(wide, axes)
    return shift.squeeze(axes), offset, jnp.maximum(square - jnp.square(offset), 0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _sums(x: Values, axes: Axes) -> tuple[Values, Values]:
    """The sums of x and of x^2, with axes of size 1, by one reduction: the array is read once.

    As two reductions it is read twice, and on the CPU x^2 is written first. A reduction of pairs
    adds in a row there, where an ordinary one adds as a tree: of many positions it is one axis
    after the other.
    """
    zero = jnp.zeros((), x.dtype)
    places = tuple(axis % x.ndim for axis in axes)
    steps = [places] if fan_in(x, axes) <= IN_A_ROW else [(place,) for place in reversed(places)]
    pair = x, jnp.square(x)
    for step in steps:
        pair = jax.lax.reduce(pair, (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), step)
    return jnp.expand_dims(pair[0], places), jnp.expand_dims(pair[1], places)


@_sums.defjvp
def _sums_jvp(axes: Axes, primals: Any, tangents: Any) -> Any:
    """JAX has no derivative of such a reduction."""
    (x,), (tangent,) = primals, tangents
    pair = tangent.sum(axes, keepdims=True), (2 * x * tangent).sum(axes, keepdims=True)
    return _sums(x, axes), pair


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
