"""Normalization with fixed statistics, multiplied into the kernel and bias in front of it."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxnorm._axes import negative_axes, per_unit, unit_shape
from jaxnorm._numerics import nonzero, promote

Units = Float[Array, "..."]


class Folded(NamedTuple):
    """Kernel and bias of a layer that includes a normalization.

    Attributes:
        kernel: of the plain kernel's shape and type.
        bias: one value per channel, of the kernel's type.
    """

    kernel: Float[Array, "..."]
    bias: Units


def fold_into_kernel(
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
    """Kernel and bias equal to a layer followed by batch normalization in evaluation.

    gamma (w'x + b - mu) / sqrt(var + eps) + beta = (a w)'x + a (b - mu) + beta, with
    a = gamma / sqrt(var + eps). Exact for any padding, since the normalization comes after the
    kernel; a normalization *before* a zero-padded convolution cannot be folded.

    Args:
        kernel: the plain kernel; for a reparametrized one its `effective` kernel.
        bias: the layer's bias per channel, or None.
        mean: mu, the running mean per channel; None for a normalization without one. As all values
            per channel it may have axes of size 1, as in Haiku.
        variance: the running variance per channel; None for a normalization that does not divide.
        scale: gamma per channel; 1 if None.
        offset: beta per channel; 0 if None.
        fan_in_axes: the kernel's axes that the weights of one unit run over.
        epsilon: added to the variance. A unit for which both are zero is not divided, as in
            `jaxnorm.nnx.BatchNorm`.

    Returns:
        ``(kernel, bias)``, computed in float32 or wider, in the kernel's type.

    Raises:
        ValueError: for axes that the kernel does not have, for another number of values than units,
            and for a finite result that overflows the kernel's type, as of float16; under jit that
            result is infinite.

    Elementwise in the units: the same under jit, pmap and shard_map.

    Example:
        >>> one = jnp.ones(1)
        >>> folded = fold_into_kernel(
        ...     jnp.ones((2, 1)), None, 2 * one, 4 * one, fan_in_axes=0, epsilon=0.0
        ... )
        >>> folded.kernel.ravel().tolist(), folded.bias.tolist()
        ([0.5, 0.5], [-1.0])

    Source: Ioffe and Szegedy 2015, Algorithm 2, line 11.
    """
    axes = negative_axes(fan_in_axes, kernel.ndim, "the kernel")
    wide = promote(kernel, *[p for p in (bias, mean, variance, scale, offset) if p is not None])
    units = unit_shape(wide, axes)

    def filled(values: Units | None, default: float, name: str) -> Units:
        if values is None:
            return jnp.full(units, default, wide.dtype)
        return _per_channel(promote(values, wide), units, name)

    factor = filled(scale, 1.0, "scale")
    if variance is not None:
        factor = factor * inverse_deviation(filled(variance, 1.0, "variance"), epsilon)
    shift = filled(bias, 0.0, "bias") - filled(mean, 0.0, "mean")
    shift = shift * factor + filled(offset, 0.0, "offset")
    return Folded(
        _rounded(wide * per_unit(factor, axes), kernel.dtype, "kernel"),
        _rounded(shift, kernel.dtype, "bias"),
    )


def _per_channel(values: Units, units: tuple[int, ...], name: str) -> Units:
    """Returns values in the shape of the units, of which axes of size 1 count none.

    Raises ValueError for another number of values.
    """
    try:
        return jnp.broadcast_to(values, units)
    except ValueError:
        if values.size == math.prod(units):
            return values.reshape(units)
    raise ValueError(
        f"{name} has the shape {values.shape}, and the kernel's units the shape {units}; wanted "
        "one value per unit. Is it of another layer, or are fan_in_axes not the axes of the "
        "inputs? They are (0, 1, 2) for a kernel of shape (height, width, inputs, outputs), and 0 "
        "for (inputs, outputs)."
    )


def inverse_deviation(variance: Units, epsilon: float) -> Units:
    """1 / sqrt(var + eps); 1 where that sum is 0, NaN where it is infinite or NaN.

    A variance that overflowed must not become a factor of 0, which would hide the overflow.
    """
    total = variance + epsilon
    return 1 / jnp.sqrt(nonzero(jnp.where(jnp.isinf(total), jnp.nan, total)))


def _rounded(values: Float[Array, "..."], dtype: Any, name: str) -> Float[Array, "..."]:
    """Casts ``values``. Raises ValueError if concrete finite values overflow the type."""
    rounded = values.astype(dtype)
    overflows = (jnp.isfinite(values) & ~jnp.isfinite(rounded)).any()
    if not isinstance(overflows, jax.core.Tracer) and overflows:
        largest = float(jnp.nanmax(jnp.abs(values)))
        raise ValueError(
            f"the folded {name} reaches {largest:g}, which overflows {dtype}; "
            "cast the layer's parameters to float32 or bfloat16 before the fold."
        )
    return rounded
