"""Moments of a large sample, gathered from minibatches."""

import functools
from collections.abc import Iterable
from typing import Any

import jax
from jaxtyping import PyTree

from jaxnorm.statistics._batch_moments import batch_moments
from jaxnorm.statistics._moments import Moments, merge_moments


def population_statistics(
    batches: Iterable[PyTree], axes: int | Iterable[int] | None = None
) -> PyTree:
    """The moments of all samples of all minibatches together, exactly, in constant memory.

    Minibatches may differ in size: they are merged by their sizes, never by averaging means.

    Args:
        batches: arrays, or pytrees of arrays (one for each layer), all of one structure. A
            generator is consumed.
        axes: the axes of samples and positions in every array, or None for all but the last: a unit
            is then a channel, for (batch, units) and (batch, height, width, channels) alike.

    Returns:
        `Moments` in the place of each array, in float32 or wider; the variance is biased.

    Raises:
        ValueError: if there is no minibatch, or for axes that an array does not have.

    Each minibatch is one call of a compiled function, so it is for use outside jit; inside a trace
    fold `merge_moments` over `batch_moments` with ``jax.lax.scan``. A sharded minibatch counts as
    the whole that it is; under pmap and shard_map use ``batch_moments(..., axis_name=...)``.

    Example:
        >>> import jax.numpy as jnp
        >>> batches = [{"dense": jnp.zeros((3, 2))}, {"dense": jnp.full((1, 2), 4.0)}]
        >>> moments = population_statistics(batches)["dense"]
        >>> moments.mean.tolist(), moments.variance.tolist(), int(moments.size)
        ([1.0, 1.0], [3.0, 3.0], 4)

    Source: Luo et al. 2019, section 5 (population normalization, from 10,000 samples); Chan, Golub
    and LeVeque 1983 for the merge.
    """
    fixed = axes if axes is None or isinstance(axes, int) else tuple(axes)
    total = None
    for batch in batches:
        total = _start(batch, fixed) if total is None else _continue(total, batch, fixed)
    if total is None:
        raise ValueError("got no minibatch; wanted at least one to take statistics of.")
    return total


@functools.partial(jax.jit, static_argnums=1)
def _start(batch: PyTree, axes: Any) -> PyTree:
    return jax.tree.map(
        lambda x: batch_moments(x, _all_but_last(x) if axes is None else axes), batch
    )


@functools.partial(jax.jit, static_argnums=2)
def _continue(total: PyTree, batch: PyTree, axes: Any) -> PyTree:
    return jax.tree.map(merge_moments, total, _start(batch, axes), is_leaf=_is_moments)


def _is_moments(x: Any) -> bool:
    return isinstance(x, Moments)


def _all_but_last(x: Any) -> tuple[int, ...]:
    return tuple(range(-x.ndim, -1))
