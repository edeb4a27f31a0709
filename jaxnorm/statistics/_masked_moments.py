"""Mean, variance and count of those values of a sample that a mask leaves in."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxnorm._trees._node import Axes

Values = Float[Array, "..."]


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
    try:
        return jnp.broadcast_to(mask, x.shape)
    except ValueError:
        raise ValueError(
            f"the mask has the shape {mask.shape}; wanted one that broadcasts to that of the "
            f"activations, {tuple(x.shape)}: mask[:, None] of one value a sample, for example."
        ) from None
