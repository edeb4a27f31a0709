"""The first rows of a batch, taken without a gradient that is padded to the whole batch."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm.statistics._groups import split_groups

Values = Float[Array, "..."]


def with_first_rows(x: Values, count: int, groups: int = 1) -> tuple[Values, Values]:
    """The identity on ``x``, which also hands out its first rows: ``x, rows = ...``.

    A loss on ``x[:count]`` has a gradient that is padded with zeros to the whole batch and added to
    the gradient of everything else: where XLA does not fuse that, an array of the activations' size
    is written and read once more. Here the rows' gradient is added into the first rows of the other
    one, in place (for more than one group, in the one addition that XLA was seen to fuse).

    A model's tap threads ``x`` through it, so that the rest of the network uses what it returns::

        h = dense(x)
        h, rows = with_first_rows(h, 2 * sample_size)
        preactivations["dense"] = rows  # for total_variance_constancy
        x = activation(h)

    Args:
        x: activations, with the batch as axis 0.
        count: the number of rows, of each group.
        groups: the batch is seen as so many contiguous parts, as in `variance_constancy_loss`.

    Returns:
        The pair of ``x`` itself and the rows, groups * count of them, in order: the first of every
        part. `variance_constancy_loss` with the same ``groups`` is the same on them as on ``x``.

    Raises:
        ValueError: for groups that do not divide the batch, or fewer rows than ``count`` in each.

    Under pmap and shard_map the rows are the device's own; under jit with a sharded batch, groups
    that are aligned with the devices make it free of communication, while the first rows of the
    whole batch lie on one device. Reverse-mode derivatives only.

    Example:
        >>> x, rows = with_first_rows(jnp.arange(6.0), 2, groups=2)
        >>> rows.tolist()
        [0.0, 1.0, 3.0, 4.0]
        >>> jax.grad(lambda x: (lambda x, rows: x.sum() + rows.sum())(*with_first_rows(x, 2)))(x)
        Array([2., 2., 1., 1., 1., 1.], dtype=float32)

    Source: ours. Compiled for a CPU, the gradient of four dense layers of 256 at batch 1024, each
    with its loss, accesses 1.005x the bytes of the layers alone.
    """
    check_rows(x, count, groups)
    result: tuple[Values, Values] = _with_first_rows(x, count, groups)
    return result


def first_rows(x: Any, count: int, groups: int) -> Any:
    """The first rows of each part, as (groups, count, ...)."""
    check_rows(x, count, groups)
    # One group needs no reshape, in front of which XLA would not fuse the rows' gradient.
    return x[None, :count] if groups == 1 else split_groups(x, groups)[:, :count]


def check_rows(x: Any, count: int, groups: int) -> None:
    """Raises ValueError where a part of the batch has fewer rows than are wanted."""
    rows = split_rows(x, groups)
    if not 0 < count <= rows:
        raise ValueError(
            f"wanted the first {count} samples (2 * sample_size for the variance constancy loss) "
            f"of each of {groups} groups, and a group of this batch of {x.shape[0]} has {rows}. "
            "Take a larger batch, fewer groups or a smaller sample size."
        )


def split_rows(x: Any, groups: int) -> int:
    """The number of rows of each part."""
    rows: int = jax.eval_shape(lambda x: split_groups(x, groups), x).shape[1]
    return rows


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _with_first_rows(x: Any, count: int, groups: int) -> Any:
    return x, _flat(first_rows(x, count, groups))


def _forward(x: Any, count: int, groups: int) -> Any:
    return _with_first_rows(x, count, groups), None


def _backward(count: int, groups: int, residuals: None, cotangents: Any) -> Any:
    del residuals
    x, rows = cotangents
    if groups == 1:
        return (jax.lax.dynamic_update_slice_in_dim(x, x[:count] + rows, 0, axis=0),)
    # Here x itself is not reshaped: in place, XLA copies it, where it fuses this addition.
    parts = split_groups(rows, groups)
    rest = x.shape[0] // groups - count
    return (x + _flat(jnp.pad(parts, [(0, 0), (0, rest), *[(0, 0)] * (parts.ndim - 2)])),)


_with_first_rows.defvjp(_forward, _backward)


def _flat(parts: Any) -> Any:
    return jnp.reshape(parts, (parts.shape[0] * parts.shape[1], *parts.shape[2:]))
