"""Layers that take the place of a normalization: its scale and bias, or nothing."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._checks import NONNEGATIVE, check_number
from jaxnorm._noise import noisy_affine
from jaxnorm._numerics import promote
from jaxnorm.nnx._normalize import check_features


class ScaleAndBias(nnx.Module):
    """y = (1 + n) gamma x + beta per feature: the affine part of a normalization layer.

    With a ``stddev``, n ~ N(0, sigma^2) is drawn in training per sample (the first axis) and
    feature, alike at all positions, as `jaxnorm.with_scale_noise` draws it. The layer is for
    networks that cannot be traced, such as those that use one kernel in every iteration of a loop,
    and for places without a kernel. ``model.eval()``, or ``deterministic=True``, turns the noise
    off as it turns off dropout. Under shard_map and pmap give each device its own random keys, as
    for dropout.

    Args:
        num_features: the size of ``axis``.
        axis: the axis of the features.
        stddev: sigma; 0 for no noise.
        rngs: the random streams, needed with a ``stddev`` only; the draws use ``noise``, or
            ``default`` without it.
        deterministic: True for no noise, as in evaluation.
        dtype: of the result; that of ``x`` if None.
        param_dtype: of gamma and beta.

    Attributes:
        channel_scale: gamma, which `jaxnorm.noise_injection` perturbs as it does the scale of a
            `jaxnorm.Scaled` kernel; the name tells it from the scales of other layers. It may be
            set to None, as ``bias``.
        bias: beta.

    Raises:
        ValueError: for a ``stddev`` that is negative or not finite, for one without ``rngs``, and
            in a call for another number of features.

    Example:
        >>> ScaleAndBias(3)(jnp.ones((2, 3))).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
        >>> noisy = ScaleAndBias(3, stddev=0.1, rngs=nnx.Rngs(0))
        >>> bool((noisy(jnp.ones((2, 3))) == 1).any())
        False

    Source: Ikami et al. 2021, Eqs. 6 and 7.
    """

    def __init__(
        self,
        num_features: int,
        *,
        axis: int = -1,
        stddev: float = 0.0,
        rngs: nnx.Rngs | None = None,
        deterministic: bool = False,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
    ):
        """Makes a layer with gamma = 1 and beta = 0."""
        check_number(stddev, NONNEGATIVE, "stddev", "0.1 for example")
        if stddev and rngs is None:
            raise ValueError(f"a stddev of {stddev} draws noise; pass rngs=nnx.Rngs(seed) too.")
        self.num_features, self.axis, self.dtype = num_features, axis, dtype
        self.stddev, self.deterministic = stddev, deterministic
        self.rngs = rngs["noise"].fork() if stddev and rngs is not None else None
        self.channel_scale: nnx.Param[Any] | None = nnx.Param(jnp.ones(num_features, param_dtype))
        self.bias: nnx.Param[Any] | None = nnx.Param(jnp.zeros(num_features, param_dtype))

    def __call__(self, x: Float[Array, "..."], *args: Any, **kwargs: Any) -> Float[Array, "..."]:
        """Scales and shifts ``x``; ignores further arguments, which a BatchNorm takes."""
        del args, kwargs
        check_features(x, self.num_features, self.axis)
        shape = [1] * x.ndim
        shape[self.axis] = -1
        wide = promote(x)
        if self.channel_scale is not None:
            wide = wide * promote(self.channel_scale[...], wide).reshape(shape)
        bias = None if self.bias is None else promote(self.bias[...], wide).reshape(shape)
        if self.rngs is not None and not self.deterministic:
            draws = [1] * x.ndim
            draws[0], draws[self.axis] = x.shape[0], x.shape[self.axis]
            factor = 1 + self.stddev * jax.random.normal(self.rngs(), draws, wide.dtype)
            wide = noisy_affine(wide, factor, bias)
        elif bias is not None:
            wide = wide + bias
        return wide.astype(self.dtype or x.dtype)


class Identity(nnx.Module):
    """Identity function, in the place of a normalization that the layer before it includes.

    Args:
        dtype: of the result; that of ``x`` if None.

    Example:
        >>> Identity()(1.0, use_running_average=True)
        1.0
    """

    def __init__(self, *, dtype: Any = None):
        """Makes a layer without parameters."""
        self.dtype = dtype

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns ``x``; ignores further arguments, which a BatchNorm takes."""
        del args, kwargs
        return x if self.dtype is None else x.astype(self.dtype)
