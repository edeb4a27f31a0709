"""Activations of Gaussian inputs: moments, Jacobian factors, and standardized activations."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._numerics import promote
from jaxnorm._quadrature import (
    Activation,
    Moment,
    moments,
    plain,
    root_mean_square_slope,
    unit_rule,
)

Values = Float[Array, "..."]

#: The default slope of ``jax.nn.leaky_relu``.
LEAKY_SLOPE = 0.01

#: The smallest ratio of a rectified Gaussian's standard deviation to its scale, so that quotients
#: and their gradients stay finite in float32. A unit reaches it at bias / scale = -8.2.
STD_FLOOR = 1e-9

#: The bound on |bias / scale|, beyond which float32 and float64 results no longer change.
FARTHEST = 1e4

#: Nodes and the end of the integral over a tail, where every exponential has fallen under 1e-13.
TAIL_NODES, TAIL_END = 64, 32


def gaussian_moments(activation: Activation) -> tuple[Moment, Moment]:
    """Mean E f(Z) and standard deviation of f(Z), Z ~ N(0, 1), of an activation f.

    Closed form for ``jax.nn.relu`` and ``jax.nn.leaky_relu`` (slope a: mean (1 - a) / sqrt(2 pi),
    variance ((1 + a^2) - (1 - a)^2 / pi) / 2); adaptive quadrature for any other activation.

    Args:
        activation: an elementwise function of JAX operations. Parameters that it closes over may be
            scalars or arrays with one value per channel (the last axis); bind the slope of
            ``jax.nn.leaky_relu`` with ``functools.partial``.

    Returns:
        The pair (mean, standard deviation) as Python floats, with errors below 1e-10 whatever JAX's
        default precision; as float64 arrays for parameters per channel. An activation that jumps
        may lose accuracy, by at most 7e-6 of the jump. If a parameter is traced, as the
        slope of a learned PReLU inside jit or grad, the pair is differentiable and in float32, by
        Gauss-Legendre nodes in panels of width 1/64 on [-8, 8], with errors below 2e-6 for
        activations that grow at most as exp does. If a parameter moves a kink away from 0, the
        derivatives have errors below 2e-3. If the activation jumps, its moments have errors below
        1e-2 of the jump, and the derivatives lack the effect of moving the jump, because a
        comparison has no derivative.

    Raises:
        ValueError: for an activation without finite moments (one with a pole, as tan, or as large
            as exp(x^2 / 4)), one too close to that for float64 (exp(0.24 x^2) is not), or one with
            many jumps, such as one that rounds its values.

    Under jit, pmap, vmap and shard_map the moments are computed on the host while tracing and are
    constants of the program: no device computes them, and nothing is communicated. Each call
    computes them again, in 0.05 to 1 s. The quadrature may miss a spike narrower than 0.001, and a
    step steeper than 1e5 at a multiple of 1/64 other than 0.

    Example:
        >>> mean, std = gaussian_moments(jax.nn.relu)
        >>> round(mean, 7), round(std, 7)
        (0.3989423, 0.5838194)
        >>> mean, std = gaussian_moments(lambda x: jnp.clip(x, -1, 1))
        >>> abs(mean) < 1e-10, round(std, 7)
        (True, 0.7183722)

    Source: Arpit et al. 2016, Remark 1 (ReLU) and section 4.6 (PReLU); quadrature for any other
    activation is ours.
    """
    a = leaky_slope(activation)
    if a is not None:
        return leaky_moments(a)
    return moments(activation)


def leaky_slope(activation: Activation) -> Any:
    """The slope below zero of ReLU and leaky ReLU; None for any other activation."""
    if activation is jax.nn.relu:
        return 0.0
    if getattr(activation, "func", activation) is jax.nn.leaky_relu:
        return getattr(activation, "keywords", {}).get("negative_slope", LEAKY_SLOPE)
    return None


def leaky_moments(a: Any) -> tuple[Moment, Moment]:
    """Mean and standard deviation of a leaky ReLU of the slope a."""
    is_traced = isinstance(a, jax.core.Tracer)
    a = promote(a) if is_traced else np.asarray(a, np.float64)
    mean = (1 - a) / math.sqrt(2 * math.pi)
    variance = ((1 + a * a) - (1 - a) * (1 - a) / math.pi) / 2
    return plain(mean), plain((jnp if is_traced else np).sqrt(variance))


def jacobian_factor(activation: Activation) -> Moment:
    """Typical singular value of a layer's Jacobian: sqrt(E f'(Z)^2) / std f(Z), Z ~ N(0, 1).

    The paper divides the scale of each layer by this factor (1.21 for ReLU), which makes the
    Jacobian's squared singular values 1 on average, and the activations smaller from layer to
    layer.

    Args:
        activation: an elementwise function, as in `gaussian_moments`.

    Returns:
        A Python float with an error below 1e-10; an array for parameters per channel; a
        differentiable array for a traced parameter. If the slope jumps, E f'^2 may lose accuracy,
        like the moments of an activation that jumps, by at most 7e-6 of the jump of f'^2. For a
        traced parameter the error of E f'^2 is below 1e-5 if the slope changes
        over 0.03 or more, and below 4e-3 of the jump of f'^2 if the slope jumps at another place
        than 0; the derivative lacks the effect of moving such a jump.

    Raises:
        ValueError: for an activation that is constant or has no finite moments.

    Computed on the host while tracing, as in `gaussian_moments`. The slope is the derivative almost
    everywhere: jumps of the activation add nothing to it.

    Example:
        >>> import jax
        >>> round(jacobian_factor(jax.nn.relu), 4)
        1.2112

    Source: Arpit et al. 2016, section 3.4; 1.47 there is the square of this factor for ReLU.
    """
    _, std = gaussian_moments(activation)
    _check_spread(std, activation)
    return root_mean_square_slope(activation) / std


def _check_spread(std: Moment, activation: Activation) -> None:
    """Raises ValueError if the standard deviation is zero; a traced one passes."""
    if not isinstance(std, jax.core.Tracer) and not np.all(np.asarray(std) > 0):
        raise ValueError(
            f"the activation {activation!r} is constant under N(0, 1): its standard deviation is "
            f"{std}, which nothing can be divided by."
        )


def standardized(
    activation: Activation, *, centered: bool = True
) -> Callable[[Any], Float[Array, "..."]]:
    """Activation x -> (f(x) - mean) / std, with the moments of f under N(0, 1).

    For a standard normal input its value has mean 0 and variance 1, so the next layer's
    pre-activations with unit-norm weights are normalized again: normalization propagates without
    statistics of the data.

    Args:
        activation: an elementwise function, as in `gaussian_moments`.
        centered: whether to subtract the mean. If False the activation is f(x) / sqrt(E f^2), whose
            mean square is 1: magnitude-preserving, as Karras et al.'s silu(x) / 0.596.

    Returns:
        A function of an array of any shape and floating type, which keeps both. The moments are
        computed here, once: call `standardized` outside the training step. If the activation has
        a learned parameter, call it inside the step, where the parameter is traced: the moments
        then follow the parameter and are differentiated.

    Raises:
        ValueError: for an activation that is constant or has no finite moments.

    Elementwise: equal under jit, pmap and shard_map; keeps shardings.

    Example:
        >>> import jax
        >>> f = standardized(jax.nn.relu)
        >>> f(jnp.array([-1.0, 0.0, 2.0])).round(3).tolist()
        [-0.6830..., -0.6830..., 2.74...]

    Source: Arpit et al. 2016, Eq. 6 and section 4.3. As in the paper, pooling is not
    renormalized. Without centering Karras et al. 2024, Eq. 81.
    """
    mean, std = gaussian_moments(activation)
    _check_spread(std, activation)
    if not centered:
        mean, std = 0.0, (mean**2 + std**2) ** 0.5

    def apply(x: Values) -> Values:
        y = activation(x)
        wide = promote(y)
        center, scale = jnp.asarray(mean, wide.dtype), jnp.asarray(std, wide.dtype)
        with jax.numpy_rank_promotion("allow"):  # Channels are the last axis.
            return ((wide - center) / scale).astype(y.dtype)

    return apply


def rectified_moments(scale: float | Values, bias: float | Values) -> tuple[Values, Values]:
    """Mean and standard deviation of relu(X), X ~ N(bias, scale^2).

    With u = bias / scale, phi the normal density and Phi its distribution function: the mean is
    scale (phi(u) + u Phi(u)), the mean square scale^2 ((1 + u^2) Phi(u) + u phi(u)). Both are
    computed from integrals of positive functions, without the cancellation of these forms, to
    within a few float32 roundings relative to their size (in float64 to 1e-10).

    Args:
        scale: the standard deviation before the rectifier; its sign does not matter.
        bias: the mean before the rectifier, of a shape that broadcasts with the scale.

    Returns:
        The pair (mean, standard deviation), in the type of the arguments. The standard deviation is
        at least 1e-9 |scale|. A unit reaches this floor at bias / scale = -8.2, where one normal
        sample in 1e16 is above zero. A unit that is dead more deeply (-14, say) stays there: its
        standard deviation can be divided by, and has the gradient 1e-9 with respect to the scale
        and 0 with respect to the bias. float16 rounds the floor to 0: pass a scale and a bias in
        float32 if units may die.

    Differentiable everywhere, and to any order if the scale is not 0. At scale 0 the mean is
    relu(bias), the standard deviation 0 (do not divide by it), and the gradients are the limits
    from positive scales; if the bias is 0 too, they are those of bias / scale = 0. Elementwise:
    equal under jit, pmap and shard_map.

    Example:
        >>> mean, std = rectified_moments(1.0, jnp.array([0.0, 14.0, -14.0]))
        >>> [f"{m:.4f} {s:.2g}" for m, s in zip(mean, std, strict=True)]
        ['0.3989 0.58', '14.0000 1', '0.0000 1e-09']

    Source: Arpit et al. 2016, Remark 1, is scale 1 and bias 0; with the unit's own bias the
    normalization stays exact while biases are learned, which is ours.
    """
    dtype = jnp.result_type(scale, bias)
    arrays = jnp.asarray(scale, dtype), jnp.asarray(bias, dtype)
    mean, std = _rectified_moments(promote(arrays[0]), promote(arrays[1]))
    return mean.astype(dtype), std.astype(dtype)


@jax.custom_jvp
def _rectified_moments(scale: Values, bias: Values) -> tuple[Values, Values]:
    u, size = _ratio(scale, bias), jnp.abs(scale)
    _, _, first, second = _tails(u)
    return jnp.maximum(bias, 0) + size * first, size * _relative_std(u, first, second)


@_rectified_moments.defjvp
def _rectified_moments_jvp(primals: Any, tangents: Any) -> Any:
    """Closed form of the derivatives, which exist at bias 0, where |bias| and relu have none."""
    scale, bias = primals
    scale_tangent, bias_tangent = jnp.where(scale < 0, -tangents[0], tangents[0]), tangents[1]
    density, above, below, mean, std = _rectified_unit(_ratio(scale, bias))
    std_by_scale = jnp.where(std <= STD_FLOOR, STD_FLOOR, (above - mean * density) / std)
    mean_tangent = density * scale_tangent + above * bias_tangent
    std_tangent = std_by_scale * scale_tangent + _std_by_bias(mean, below, std) * bias_tangent
    return _rectified_moments(scale, bias), (mean_tangent, std_tangent)


def _ratio(scale: Values, bias: Values) -> Values:
    """U = bias / |scale|, bounded by FARTHEST."""
    tiny = jnp.finfo(scale.dtype).tiny
    return jnp.clip(bias / jnp.maximum(jnp.abs(scale), tiny), -FARTHEST, FARTHEST)


@jax.custom_jvp
def _rectified_unit(u: Values) -> tuple[Values, Values, Values, Values, Values]:
    """phi(u), Phi(u), Phi(-u), and the mean and standard deviation of relu(Z + u), Z ~ N(0, 1)."""
    density, zeroth, first, second = _tails(u)
    above, below = jnp.where(u > 0, 1 - zeroth, zeroth), jnp.where(u > 0, zeroth, 1 - zeroth)
    return density, above, below, jnp.maximum(u, 0) + first, _relative_std(u, first, second)


@_rectified_unit.defjvp
def _rectified_unit_jvp(primals: Any, tangents: Any) -> Any:
    """Derivatives in terms of the function itself, so that those of any order exist at u = 0."""
    (u,), (tangent,) = primals, tangents
    density, above, below, mean, std = unit = _rectified_unit(u)
    slopes = (-u * density, density, -density, above, _std_by_bias(mean, below, std))
    return unit, tuple(slope * tangent for slope in slopes)


def _std_by_bias(mean: Values, below: Values, std: Values) -> Values:
    return jnp.where(std <= STD_FLOOR, 0, mean * below / std)


def _tails(u: Values) -> tuple[Values, Values, Values, Values]:
    """phi(u), and E max(Z - |u|, 0)^n for n = 0, 1 and 2.

    The expectation is phi(u) times the integral of x^n exp(-x^2 / 2 - |u| x) over x > 0, whose
    terms are positive, so nothing cancels. Nodes are stretched by 1 / (1 + |u|), which keeps the
    integrand one smooth hump for any u.
    """
    t = jnp.abs(u)[..., None]
    stretch = 1 / (1 + t)
    y, weights = (
        jnp.asarray(TAIL_END * constants, u.dtype).reshape(*(1,) * u.ndim, -1)
        for constants in unit_rule(TAIL_NODES)
    )
    hump = weights * jnp.exp(-jnp.square(stretch * y) / 2 - t * stretch * y)
    density = jnp.exp(-jnp.square(u) / 2) / math.sqrt(2 * math.pi)
    zeroth, first, second = (
        density * (stretch * (stretch * y) ** n * hump).sum(-1) for n in range(3)
    )
    return density, zeroth, first, second


def _relative_std(u: Values, first: Values, second: Values) -> Values:
    """The standard deviation over the scale.

    Below zero the variance is E Y^2 - (E Y)^2 of the rectified Y; above zero, where Y is X except
    in its lower tail, the variance is 1 minus what the tail takes away.
    """
    dead = second - jnp.square(first)
    alive = 1 - second - jnp.square(first) - 2 * u * first
    return jnp.sqrt(jnp.maximum(jnp.where(u > 0, alive, dead), STD_FLOOR**2))
