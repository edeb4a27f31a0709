"""Convolutions as products of matrices, which a CPU computes fast inside compiled loops."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def conv(
    x: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: Any,
    *,
    feature_group_count: int = 1,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    **options: Any,
) -> jax.Array:
    """Returns ``jax.lax.conv_general_dilated`` of the same arguments, NHWC, to rounding."""
    is_depthwise = feature_group_count == x.shape[-1] == kernel.shape[-1]
    dilated = any(d != 1 for dilation in (lhs_dilation, rhs_dilation) for d in dilation or ())
    if dilated or (feature_group_count != 1 and not is_depthwise):
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            feature_group_count=feature_group_count,
            **options,
        )
    taps = list(shifted(x, kernel.shape[:2], strides, padding))
    if is_depthwise:
        weights = kernel.reshape(-1, 1, 1, 1, kernel.shape[-1])
        total = sum(tap.astype(jnp.float32) * w for tap, w in zip(taps, weights, strict=True))
        return jnp.asarray(total, x.dtype)
    patches = taps[0] if len(taps) == 1 else jnp.concatenate(taps, axis=-1)
    return jnp.tensordot(patches, kernel.reshape(-1, kernel.shape[-1]), 1)


def shifted(
    x: jax.Array, window: Sequence[int], strides: Sequence[int], padding: Any
) -> Iterator[jax.Array]:
    """Yields the inputs of each tap of the kernel at all output positions."""
    if isinstance(padding, str):
        padding = jax.lax.padtype_to_pads(x.shape[1:3], window, strides, padding)
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    rows, columns = ((x.shape[i + 1] - window[i]) // strides[i] + 1 for i in (0, 1))
    for i in range(window[0]):
        for j in range(window[1]):
            yield jax.lax.slice(
                x,
                (0, i, j, 0),
                (
                    len(x),
                    i + (rows - 1) * strides[0] + 1,
                    j + (columns - 1) * strides[1] + 1,
                    x.shape[-1],
                ),
                (1, *strides, 1),
            )
