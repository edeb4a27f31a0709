"""The variance constancy loss, its samples, and its learned beta, kept positive."""

import math
from collections.abc import Hashable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._numerics import promote, wide_dtype
from jaxnorm._trees._axes import fan_in, negative_axes, unit_shape
from jaxnorm._trees._constrained import check_per_unit
from jaxnorm._trees._node import Axes
from jaxnorm.statistics._own_moments import split_groups
from jaxnorm.statistics._shape import sample_variance

#: Axes of samples, the batch axis 0 among them; None for all but the last.
SampleAxes = int | Iterable[int] | None

#: softplus(ONE) = 1.
ONE = math.log(math.expm1(1))

Loss = Float[Array, ""]


def samples_of(x: Any, sample_axes: SampleAxes) -> Axes:
    """The sample axes as negative numbers."""
    given = range(x.ndim - 1) if sample_axes is None else sample_axes
    return negative_axes(given, x.ndim, "the array of pre-activations")


def initial_betas(preactivations: PyTree, *, sample_axes: SampleAxes = (0,)) -> PyTree:
    """Raw betas, one a unit, of which `positive_betas` makes 1: the paper's initial value.

    Args:
        preactivations: a pytree of pre-activations, or of their shapes (``jax.eval_shape``).
        sample_axes: as in `variance_constancy_loss`; the other axes count units.

    Returns:
        A pytree of the same structure, of arrays in float32 or wider: parameters, for the
        optimizer, without weight decay.

    Raises:
        ValueError: for axes that an array does not have.

    The same on every device; it depends on shapes alone.

    Example:
        >>> raw = initial_betas({"dense": jnp.zeros((8, 3)), "conv": jnp.zeros((8, 2, 2, 4))})
        >>> raw["dense"].shape, raw["conv"].shape
        ((3,), (2, 2, 4))
        >>> positive_betas(raw)["dense"].tolist()
        [1.0, 1.0, 1.0]

    Source: Littwin and Wolf 2018, section 2.4.
    """

    def raw(x: Any) -> Float[Array, "..."]:
        shape = unit_shape(x, samples_of(x, sample_axes))
        return jnp.full(shape, ONE, wide_dtype(x.dtype))

    return jax.tree.map(raw, preactivations)


def positive_betas(raw: PyTree) -> PyTree:
    """Beta = log(1 + exp(raw)), leaf by leaf: positive for any raw value.

    The authors leave the sign of beta free. A negative one gives the loss a pole, where the second
    variance is -beta.

    Args:
        raw: a pytree of arrays, as `initial_betas` makes.

    Returns:
        A pytree of the same structure, shapes and types. Below raw = -87 float32 rounds beta to 0.

    Elementwise: the same under jit, pmap and shard_map.

    Example:
        >>> [round(float(beta), 4) for beta in positive_betas(jnp.array([-9.0, 0.0, 9.0]))]
        [0.0001, 0.6931, 9.0001]
    """
    return jax.tree.map(jax.nn.softplus, raw)


def variance_constancy_loss(
    x: Float[Array, "..."],
    beta: float | Float[Array, "..."],
    sample_size: int = 2,
    *,
    sample_axes: SampleAxes = (0,),
    axis_name: Hashable | None = None,
    groups: int = 1,
) -> Loss:
    """The mean over units of (1 - s1^2 / (s2^2 + beta))^2, for one layer.

    s1^2 and s2^2 are the unbiased variances of the first two consecutive subsets of n samples.
    Minimizing it lowers the kurtosis of the unit: it makes its distribution one of few modes.

    The loss reads 2n rows of the minibatch ``X``. Let these rows go through the network by
    themselves, ``collect_preactivations(apply, params, X[:2 * n])``, beside the whole minibatch:
    that is 2n/N more work, and the whole minibatch's pass stays as it is.

    Args:
        x: pre-activations, with the rows as axis 0; the first 2n rows of each group are read.
        beta: positive, one a unit or one number; the paper learns it from 1. A negative beta gives
            the loss a pole: `positive_betas` makes positive ones.
        sample_size: n.
        sample_axes: what a sample is made of: the axes other than these count units. (0,), the
            paper's, makes every location of every channel of a convolution a unit; (0, 1, 2), or
            None for all axes but the last, makes every channel one, and a subset n images.
        axis_name: under pmap or shard_map, the mapped axis (or axes) over which the loss is
            averaged.
        groups: the rows are so many contiguous parts, each with its own pair of subsets, and the
            loss is averaged over them.

    Returns:
        A scalar in float32 or wider. A constant unit has both variances zero: its term is 1, its
        gradient 0. An infinite or NaN value among the samples that are read makes the loss NaN,
        which ``optax.apply_if_finite`` sees.

    Raises:
        ValueError: for groups that do not divide the rows, fewer rows than 2n in a group, subsets
            of a single value, and a beta of the wrong shape.
        TypeError: for pre-activations that are not real floating-point numbers.

    Under pmap and shard_map the pair is the device's own; ``axis_name`` averages over the devices,
    in one all-reduce of a scalar. Under jit with N rows sharded over d devices, take the first 2n
    rows of every device's share, which moves no row, and say ``groups=d``: the loss is the same::

        shares = X.reshape(d, N // d, *X.shape[1:])[:, : 2 * n]
        rows = shares.reshape(d * 2 * n, *X.shape[1:])

    ``X[: 2 * n]`` would be the rows of one device, which all others would have to wait for.

    Example:
        >>> x = jnp.array([[0.0], [2.0], [0.0], [1.0], [9.0]])
        >>> float(variance_constancy_loss(x, 1.5))  # variances 2 and 0.5
        0.0

    Source: Littwin and Wolf 2018, Eq. 17 and section 2.4. Erratum: "n < 2N" there means 2n <= N.
    """
    loss = _layer(x, beta, sample_size, sample_axes, groups)
    return loss if axis_name is None else jax.lax.pmean(loss, axis_name)


def total_variance_constancy(
    preactivations: PyTree,
    betas: PyTree,
    sample_size: int = 2,
    *,
    sample_axes: SampleAxes = (0,),
    axis_name: Hashable | None = None,
    groups: int = 1,
) -> Loss:
    """The sum of `variance_constancy_loss` over the layers of a pytree.

    Args:
        preactivations: one array a layer, the last layer's (the logits) left out.
        betas: positive, of the same structure.
        sample_size: as in `variance_constancy_loss`, as the other arguments.
        sample_axes: the same for every layer; None suits layers of different rank.
        axis_name: the mapped axis over which the sum is averaged, in one all-reduce for all layers.
        groups: the number of contiguous parts of the rows.

    Returns:
        A scalar in float32 or wider; the paper gives it the weight 0.01.

    Raises:
        ValueError: for betas of another structure, and as `variance_constancy_loss`.

    It means the same under jit, pmap and shard_map as `variance_constancy_loss` does.

    Example:
        >>> from jaxnorm.losses import initial_betas, positive_betas
        >>> layers = {"first": jnp.ones((8, 3)), "second": jnp.ones((8, 5))}
        >>> float(total_variance_constancy(layers, positive_betas(initial_betas(layers))))
        2.0

    Source: Littwin and Wolf 2018, section 2.4.
    """
    losses = jax.tree.map(
        lambda x, beta: _layer(x, beta, sample_size, sample_axes, groups), preactivations, betas
    )
    total: Loss = sum(jax.tree.leaves(losses), jnp.float32(0))
    return total if axis_name is None else jax.lax.pmean(total, axis_name)


def _layer(x: Any, beta: Any, n: int, sample_axes: SampleAxes, groups: int) -> Loss:
    axes, parts = samples_of(x, sample_axes), split_groups(x, groups)
    if not 0 < 2 * n <= parts.shape[1]:
        raise ValueError(
            f"sample_size={n} takes the first {2 * n} rows of each of {groups} groups, and a group "
            f"of these {x.shape[0]} rows has {parts.shape[1]}. Take more rows, fewer groups or a "
            "smaller sample size."
        )
    # (groups, 2n, ...) -> (groups, 2, n, ...): negative axes are still those of the samples.
    pairs = promote(parts[:, : 2 * n].reshape(groups, 2, n, *x.shape[1:]))
    if fan_in(pairs, axes) < 2:
        raise ValueError(
            f"sample_size={n} of pre-activations of shape {tuple(x.shape)} makes subsets of one "
            "value, which have no variance; wanted a sample size of at least 2."
        )
    units = unit_shape(x, axes)
    check_per_unit(beta, units, "beta")
    first, second = jnp.unstack(sample_variance(pairs, axes), axis=1)
    betas = jnp.broadcast_to(jnp.asarray(beta, second.dtype), units)
    return jnp.square(1 - first / (second + betas[None])).mean()
