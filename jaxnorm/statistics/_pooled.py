"""The moments of all devices' samples together, exactly, whatever their sizes."""

from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm.statistics._moments import Moments

Values = Float[Array, "..."]


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
