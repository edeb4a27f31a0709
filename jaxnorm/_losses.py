"""The variance constancy loss, and its learned beta."""

import math
from collections.abc import Hashable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxnorm._axes import check_per_unit, fan_in_size, negative_axes, unit_shape
from jaxnorm._node import Axes
from jaxnorm._numerics import promote, wide_dtype
from jaxnorm._statistics import split_groups

Values = Float[Array, "..."]

Loss = Float[Array, ""]

#: Axes of samples, the batch axis 0 among them; None for all axes but the last.
SampleAxes = int | Iterable[int] | None

#: softplus(RAW_ONE) = 1.
RAW_ONE = math.log(math.expm1(1))


def initial_betas(preactivations: PyTree, *, sample_axes: SampleAxes = (0,)) -> PyTree:
    """Raw betas, one per unit, for which `positive_betas` is 1: the paper's initial value.

    Args:
        preactivations: a pytree of pre-activations, or of their shapes (``jax.eval_shape``).
        sample_axes: as in `variance_constancy_loss`; the remaining axes count units.

    Returns:
        A pytree of the same structure, of arrays in float32 or wider: parameters for the optimizer,
        without weight decay.

    Raises:
        ValueError: for axes that an array does not have.

    The result depends on shapes alone: it is the same on every device.

    Example:
        >>> raw = initial_betas({"dense": jnp.zeros((8, 3)), "conv": jnp.zeros((8, 2, 2, 4))})
        >>> raw["dense"].shape, raw["conv"].shape
        ((3,), (2, 2, 4))
        >>> positive_betas(raw)["dense"].tolist()
        [1.0, 1.0, 1.0]

    Source: Littwin and Wolf 2018, section 2.4.
    """

    def raw(x: Any) -> Values:
        shape = unit_shape(x, _negative_sample_axes(x, sample_axes))
        return jnp.full(shape, RAW_ONE, wide_dtype(x.dtype))

    return jax.tree.map(raw, preactivations)


def positive_betas(raw: PyTree) -> PyTree:
    """Beta = log(1 + exp(raw)) for each leaf: positive for any raw value.

    The authors leave the sign of beta free. A negative beta gives the loss a pole, where the second
    variance is -beta.

    Args:
        raw: a pytree of arrays, as `initial_betas` returns.

    Returns:
        A pytree of the same structure, shapes and types. Below raw = -87 float32 rounds beta to 0.

    Elementwise: the same under jit, pmap and shard_map.

    Example:
        >>> [round(float(beta), 4) for beta in positive_betas(jnp.array([-9.0, 0.0, 9.0]))]
        [0.0001, 0.6931, 9.0001]
    """
    return jax.tree.map(jax.nn.softplus, raw)


def variance_constancy_loss(
    x: Values,
    beta: float | Values,
    sample_size: int = 2,
    *,
    sample_axes: SampleAxes = (0,),
    axis_name: Hashable | None = None,
    groups: int = 1,
) -> Loss:
    """Mean over units of (1 - s1^2 / (s2^2 + beta))^2, for one layer.

    s1^2 and s2^2 are the unbiased variances of the first two consecutive subsets of n samples.
    Minimizing the loss lowers the kurtosis of the unit: its distribution gets few modes.

    The loss reads 2n rows of the minibatch ``X``. Let these rows go through the network by
    themselves, ``collect_preactivations(net, params, X[:2 * n])``, beside the whole minibatch:
    2n/N more work, and the pass of the whole minibatch does not change.

    Args:
        x: pre-activations, with the rows as axis 0; the first 2n rows of each group are read.
        beta: positive, one number or one per unit; the paper learns it from 1. A negative beta
            gives the loss a pole: `positive_betas` returns positive ones.
        sample_size: n.
        sample_axes: the axes of one subset; the remaining axes count units. (0,), the paper's,
            makes every location of every channel of a convolution a unit; (0, 1, 2), or None for
            all axes but the last, makes every channel a unit, and a subset n images.
        axis_name: under pmap or shard_map, the mapped axis (or axes) over which the loss is
            averaged.
        groups: the number of contiguous groups of rows, each with its own pair of subsets, over
            which the loss is averaged.

    Returns:
        A scalar in float32 or wider. A constant unit has both variances zero: its term is 1, its
        gradient 0. An infinite or NaN value among the samples that are read makes the loss NaN,
        which ``optax.apply_if_finite`` sees.

    Raises:
        ValueError: for groups that do not divide the rows, fewer rows than 2n in a group, subsets
            of a single value, and a beta of the wrong shape.
        TypeError: for pre-activations that are not real floating-point numbers.

    Under pmap and shard_map each device has its own pair; ``axis_name`` averages over the devices,
    in one all-reduce of a scalar. Under jit with N rows sharded over d devices, take the first 2n
    rows of every device's share, which moves no row, and pass ``groups=d``: the loss is the same::

        shares = X.reshape(d, N // d, *X.shape[1:])[:, : 2 * n]
        rows = shares.reshape(d * 2 * n, *X.shape[1:])

    ``X[: 2 * n]`` would be rows of one device, for which all others would have to wait.

    Example:
        >>> x = jnp.array([[0.0], [2.0], [0.0], [1.0], [9.0]])
        >>> float(variance_constancy_loss(x, 1.5))  # variances 2 and 0.5
        0.0

    Source: Littwin and Wolf 2018, Eq. 17 and section 2.4. Erratum: "n < 2N" there means 2n <= N.
    """
    loss = _layer_loss(x, beta, sample_size, sample_axes, groups)
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
    """Sum of `variance_constancy_loss` over the layers of a pytree.

    Args:
        preactivations: one array per layer, without the last layer's (the logits).
        betas: positive, of the same structure.
        sample_size: n, as in `variance_constancy_loss`.
        sample_axes: the axes of one subset in every layer; None suits layers of different rank.
        axis_name: the mapped axis over which the sum is averaged, in one all-reduce for all layers.
        groups: the number of contiguous groups of rows.

    Returns:
        A scalar in float32 or wider; the paper gives it the weight 0.01.

    Raises:
        ValueError: for betas of another structure, and as `variance_constancy_loss`.

    Under jit, pmap and shard_map it means the sum of what `variance_constancy_loss` means there.

    Example:
        >>> layers = {"first": jnp.ones((8, 3)), "second": jnp.ones((8, 5))}
        >>> float(total_variance_constancy(layers, positive_betas(initial_betas(layers))))
        2.0

    Source: Littwin and Wolf 2018, section 2.4.
    """
    losses = jax.tree.map(
        lambda x, beta: _layer_loss(x, beta, sample_size, sample_axes, groups),
        preactivations,
        betas,
    )
    total: Loss = sum(jax.tree.leaves(losses), jnp.float32(0))
    return total if axis_name is None else jax.lax.pmean(total, axis_name)


def _layer_loss(x: Values, beta: Any, n: int, sample_axes: SampleAxes, groups: int) -> Loss:
    axes, parts = _negative_sample_axes(x, sample_axes), split_groups(x, groups)
    if not 0 < 2 * n <= parts.shape[1]:
        raise ValueError(
            f"sample_size={n} takes the first {2 * n} rows of each of {groups} groups, and a group "
            f"of these {x.shape[0]} rows has {parts.shape[1]}. Take more rows, fewer groups or a "
            "smaller sample size."
        )
    # (groups, 2n, ...) -> (groups, 2, n, ...): negative axes are still those of the samples.
    pairs = promote(parts[:, : 2 * n].reshape(groups, 2, n, *x.shape[1:]))
    if fan_in_size(pairs, axes) < 2:
        raise ValueError(
            f"sample_size={n} of pre-activations of shape {tuple(x.shape)} makes subsets of one "
            "value, which have no variance; wanted a sample size of at least 2."
        )
    units = unit_shape(x, axes)
    check_per_unit(beta, units, "beta")
    first, second = jnp.unstack(_unbiased_variance(pairs, axes), axis=1)
    betas = jnp.broadcast_to(jnp.asarray(beta, second.dtype), units)
    return jnp.square(1 - first / (second + betas[None])).mean()


def _unbiased_variance(wide: Values, axes: Axes) -> Values:
    """Sum of (x - mean)^2 over n - 1, in two passes: exact for small samples of large offset."""
    deviation = wide - jax.lax.stop_gradient(wide.mean(axes, keepdims=True))
    # The mean of the deviations is the rounding error of the mean.
    error = deviation.mean(axes, keepdims=True)
    return jnp.square(deviation - error).sum(axes) / (fan_in_size(wide, axes) - 1)


def _negative_sample_axes(x: Any, sample_axes: SampleAxes) -> Axes:
    axes = range(x.ndim - 1) if sample_axes is None else sample_axes
    return negative_axes(axes, x.ndim, "the array of pre-activations")
