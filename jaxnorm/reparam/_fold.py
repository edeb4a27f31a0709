"""Writing a normalization into the kernel and the bias in front of it, for inference."""

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._numerics import nonzero, promote
from jaxnorm._trees._axes import negative_axes, per_unit, unit_shape

Units = Float[Array, "..."]


class Folded(NamedTuple):
    """A kernel and bias that do a normalization's work too.

    Attributes:
        kernel: of the kernel's own shape and type.
        bias: one value per unit.

    Example: see `fold_batch_norm`.
    """

    kernel: Float[Array, "..."]
    bias: Units


def fold_batch_norm(
    kernel: Float[Array, "..."],
    bias: Units | None,
    mean: Units | None,
    variance: Units | None,
    scale: Units | None = None,
    offset: Units | None = None,
    *,
    fan_in_axes: int | Iterable[int],
    epsilon: float = 1e-5,
) -> Folded:
    """The kernel and bias that equal a layer followed by batch normalization in evaluation.

    gamma (w'x + b - mu) / sqrt(var + eps) + beta = (a w)'x + a (b - mu) + beta, with
    a = gamma / sqrt(var + eps). Exact for any padding, since the normalization comes after the
    kernel; a normalization *before* a zero-padded convolution cannot be written into it.

    Args:
        kernel: the plain kernel, `effective` of a reparametrized one.
        bias: the layer's bias per unit, or None.
        mean: mu, running mean per unit; None for a normalization without one.
        variance: running variance per unit; None for a normalization that does not divide.
        scale: gamma per unit, 1 if None.
        offset: beta per unit, 0 if None.
        fan_in_axes: the kernel's axes that one unit's weights run over.
        epsilon: what the layer adds to the variance. A unit for which both are zero is not divided,
            as in `jaxnorm.nnx.BatchNorm`.

    Returns:
        ``(kernel, bias)``, computed in float32 or wider, in the kernel's type.

    Example:
        >>> one = jnp.ones(1)
        >>> folded = fold_batch_norm(
        ...     jnp.ones((2, 1)), None, 2 * one, 4 * one, fan_in_axes=0, epsilon=0.0
        ... )
        >>> folded.kernel.ravel().tolist(), folded.bias.tolist()
        ([0.5, 0.5], [-1.0])
    """
    axes = negative_axes(fan_in_axes, kernel.ndim, "the kernel")
    given = [p for p in (bias, mean, variance, scale, offset) if p is not None]
    wide = promote(kernel, *given)
    units = jnp.zeros(unit_shape(wide, axes), wide.dtype)
    factor = 1 + units if variance is None else inverse_deviation(promote(variance, wide), epsilon)
    if scale is not None:
        factor = factor * promote(scale, wide)
    shift = units if bias is None else promote(bias, wide)
    if mean is not None:
        shift = shift - promote(mean, wide)
    shift = shift * factor
    if offset is not None:
        shift = shift + promote(offset, wide)
    folded = wide * per_unit(factor, axes)
    return Folded(folded.astype(kernel.dtype), shift.astype(kernel.dtype))


def inverse_deviation(variance: Units, epsilon: float) -> Units:
    """1 / sqrt(var + eps), and 1 where that is 0: a constant unit stays finite. NaN stays seen.

    So does a variance that overflowed, as NaN: its reciprocal would make 0 of all values.
    """
    total = variance + epsilon
    return 1 / jnp.sqrt(nonzero(jnp.where(jnp.isinf(total), jnp.nan, total)))
