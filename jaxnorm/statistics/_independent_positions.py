"""How many independent values the positions of a sample amount to."""

import math
from collections.abc import Hashable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._numerics import ROUNDING_ERRORS, nonzero, promote


def independent_positions(
    x: Float[Array, "samples *positions units"], *, axis_name: Hashable | None = None
) -> Float[Array, " units"]:
    """The variance of a unit's values over the variance of its samples' means over positions.

    The ratio is P for P independent positions, and 1 for positions that are all the same. A batch
    of N images says as much of a channel's mean as N times so many independent values.

    Args:
        x: activations, (samples, *positions, units).
        axis_name: under pmap or shard_map, the mapped axis (or axes) whose devices' samples are
            taken together, in two all-reduces.

    Returns:
        One value a unit from 1 to P, in float32 or wider; P for a unit without variance. A single
        sample has no variance between samples: P as well. An infinite or NaN value makes its own
        unit NaN.

    Raises:
        TypeError: for activations that are not real floating-point numbers.

    Under pmap and shard_map without ``axis_name`` the samples are the device's own; under jit the
    whole batch, however it is sharded.

    Example:
        >>> same = jnp.array([[1.0, 1.0], [-1.0, -1.0]])[..., None]
        >>> independent_positions(same).tolist()
        [1.0]

    Source: ours; the batch_size of `jaxnorm.gamma_decay_strength` counts such values.
    """
    wide = promote(x)
    positions = tuple(range(1, x.ndim - 1))
    everything = (0, *positions)
    count = math.prod(x.shape[1:-1])
    own_mean = wide.mean(everything, keepdims=True)
    deviation = wide - (own_mean if axis_name is None else jax.lax.pmean(own_mean, axis_name))
    of_samples = deviation.mean(positions)
    moments = jnp.square(deviation).mean(everything), jnp.square(of_samples).mean(0)
    found = (*moments, of_samples.mean(0))
    total, between, error = found if axis_name is None else jax.lax.pmean(found, axis_name)
    # The rounding of the mean, which all samples share: of a large offset it is no small part.
    total, between = (moment - jnp.square(error) for moment in (total, between))
    resolution = float(jnp.finfo(wide.dtype).eps) * ROUNDING_ERRORS
    blurred = between <= total * resolution
    ratio = total / nonzero(between, blurred)
    return jnp.clip(jnp.where(blurred, jnp.full_like(ratio, count), ratio), 1, count)
