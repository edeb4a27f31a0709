"""What is left of a normalization layer when its normalization goes: a scale and a bias."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from jaxnorm._checks import NONNEGATIVE, check_number
from jaxnorm._numerics import promote
from jaxnorm.nnx._layer import Signature
from jaxnorm.nnx._statistics import check_features
from jaxnorm.noise._noisy_affine import noisy_affine


class ScaleAndBias(nnx.Module):
    """y = (1 + n) gamma x + beta, per feature: the affine part of a normalization layer.

    With a ``stddev``, n ~ N(0, sigma^2) is drawn in training for each sample (the first axis) and
    feature, the same at all positions, as `jaxnorm.with_scale_noise` draws it; this form is for
    networks that cannot be traced, such as those that use one kernel at every turn of a loop, and
    for places where no kernel is. ``model.eval()``, or ``deterministic=True``, turns it off, as it
    does dropout. Under shard_map and pmap give each device random keys of its own, as for dropout.

    Args:
        num_features: the length of ``axis``.
        axis: of the features.
        stddev: sigma; 0 for no noise.
        rngs: the random streams; the draws are of ``noise``, or of ``default`` without it. Needed
            with a ``stddev`` only.
        deterministic: whether there is no noise, in evaluation.
        dtype: of the result; that of ``x`` if None.
        param_dtype: of gamma and beta.

    Attributes:
        channel_scale: gamma, which `jaxnorm.noise_injection` makes noisy as it does the scale of a
            `jaxnorm.Scaled` kernel; the name sets it apart from the scales of other layers. May be
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

    __signature__ = Signature()

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
        """A layer with gamma = 1 and beta = 0 along ``axis``."""
        check_number(stddev, NONNEGATIVE, "stddev", "0.1 for example")
        if stddev and rngs is None:
            raise ValueError(f"a stddev of {stddev} draws noise; pass rngs=nnx.Rngs(seed) too.")
        self.num_features, self.axis, self.dtype = num_features, axis, dtype
        self.stddev, self.deterministic = stddev, deterministic
        self.rngs = rngs["noise"].fork() if stddev and rngs is not None else None
        ones, zeros = (f(num_features, param_dtype) for f in (jnp.ones, jnp.zeros))
        self.channel_scale: nnx.Param[Any] | None = nnx.Param(ones)
        self.bias: nnx.Param[Any] | None = nnx.Param(zeros)

    def __call__(self, x: Float[Array, "..."], *args: Any, **kwargs: Any) -> Float[Array, "..."]:
        """Scales and shifts; further arguments, which the replaced layer took, are ignored."""
        del args, kwargs
        check_features(x, self.num_features, self.axis)
        shape = [1] * x.ndim
        shape[self.axis] = -1
        wide = promote(x)
        if self.channel_scale is not None:
            wide = wide * promote(self.channel_scale[...], wide).reshape(shape)
        bias = None
        if self.bias is not None:
            bias = promote(self.bias[...], wide).reshape(shape)
        if self.rngs is not None and not self.deterministic:
            draws = [1] * x.ndim
            draws[0], draws[self.axis] = x.shape[0], x.shape[self.axis]
            factor = 1 + self.stddev * jax.random.normal(self.rngs(), draws, wide.dtype)
            wide = noisy_affine(wide, factor, bias)
        elif bias is not None:
            wide = wide + bias
        return wide.astype(self.dtype or x.dtype)


class Identity(nnx.Module):
    """Stands where a normalization layer stood whose work the layer before it now does.

    Args:
        dtype: of the result, as that layer had it; that of ``x`` if None.

    Example:
        >>> Identity()(1.0, use_running_average=True)
        1.0
    """

    __signature__ = Signature()

    def __init__(self, *, dtype: Any = None):
        """A layer that is there for its type alone."""
        self.dtype = dtype

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns ``x``; further arguments, which the replaced layer took, are ignored."""
        del args, kwargs
        return x if self.dtype is None else x.astype(self.dtype)
