"""A batch seen as contiguous parts, each with statistics of its own."""

from typing import Any

import jax.numpy as jnp


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
