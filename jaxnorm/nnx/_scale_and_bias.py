"""What is left of a normalization layer when its normalization goes: a scale and a bias."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._unit import widen


class ScaleAndBias(nnx.Module):
    """y = gamma x + beta, per feature: the affine part of a normalization layer.

    Attributes:
        channel_scale: gamma, which `jaxnorm.noise_injection` makes noisy as it does the scale of a
            `jaxnorm.Scaled` kernel; the name sets it apart from the scales of other layers. May be
            set to None, as ``bias``.
        bias: beta.

    Example:
        >>> ScaleAndBias(3)(jnp.ones((2, 3))).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]

    Source: Ikami et al. 2021, Eq. 6.
    """

    def __init__(self, num_features: int, *, axis: int = -1, param_dtype: Any = jnp.float32):
        """A layer with gamma = 1 and beta = 0 along ``axis``."""
        self.axis = axis
        ones, zeros = (f(num_features, param_dtype) for f in (jnp.ones, jnp.zeros))
        self.channel_scale: nnx.Param[Any] | None = nnx.Param(ones)
        self.bias: nnx.Param[Any] | None = nnx.Param(zeros)

    def __call__(self, x: Float[Array, "..."], *args: Any, **kwargs: Any) -> Float[Array, "..."]:
        """Scales and shifts; further arguments, which the replaced layer took, are ignored."""
        del args, kwargs
        shape = [1] * x.ndim
        shape[self.axis] = -1
        wide = widen(x)
        if self.channel_scale is not None:
            wide = wide * widen(self.channel_scale[...], wide).reshape(shape)
        if self.bias is not None:
            wide = wide + widen(self.bias[...], wide).reshape(shape)
        return wide.astype(x.dtype)


class Identity(nnx.Module):
    """Stands where a normalization layer stood whose work the layer before it now does.

    Example:
        >>> Identity()(1.0, use_running_average=True)
        1.0
    """

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns ``x``; further arguments, which the replaced layer took, are ignored."""
        del args, kwargs
        return x
