"""The exact mean and standard deviation of a rectified Gaussian of any mean and scale."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxnorm._numerics import promote

Values = Float[Array, "..."]

#: The standard deviation is never less than this times the scale: what is divided by it, and by its
#: square in a gradient, stays finite in float32. The floor is reached at bias / scale = -8.2.
STD_FLOOR = 1e-9

#: From here on a unit is alive or dead for every float.
FARTHEST = 1e4

# Gauss-Legendre on [0, 32], where every exponential below has fallen under 1e-13.
_X, _W = np.polynomial.legendre.leggauss(64)
_NODES, _WEIGHTS = 16 * (_X + 1), 16 * _W


def rectified_moments(scale: float | Values, bias: float | Values) -> tuple[Values, Values]:
    """The mean and standard deviation of relu(X), X ~ N(bias, scale^2).

    With u = bias / scale, phi the normal density and Phi its distribution function: the mean is
    scale (phi(u) + u Phi(u)), the mean square scale^2 ((1 + u^2) Phi(u) + u phi(u)). They are
    computed from integrals of positive functions, without the cancellation of these forms, to a few
    float32 roundings of their own size (in float64 to 1e-10).

    Args:
        scale: the standard deviation before the rectifier; its sign does not matter.
        bias: the mean before the rectifier, of a shape that broadcasts with the scale.

    Returns:
        The pair (mean, standard deviation), in the type of the arguments. The standard deviation is
        at least 1e-9 |scale|: a floor that a unit meets at bias / scale = -8.2, where one normal
        sample in 1e16 is above zero. Deeper in the dead region (-14, say) it stays there: finite
        when divided by, and with the gradient 1e-9 towards the scale and 0 towards the bias.
        float16 rounds the floor to 0: where units may die, give it a scale and a bias in float32.

    Differentiable everywhere, and to any order where the scale is not 0. At scale 0 the mean is
    relu(bias), the standard deviation 0 (do not divide by it), and the gradients are the limits
    from positive scales; with the bias 0 as well they are those of bias / scale = 0. Elementwise:
    the same under jit, pmap and shard_map.

    Example:
        >>> mean, std = rectified_moments(1.0, jnp.array([0.0, 14.0, -14.0]))
        >>> [f"{m:.4f} {s:.2g}" for m, s in zip(mean, std, strict=True)]
        ['0.3989 0.58', '14.0000 1', '0.0000 1e-09']

    Source: Arpit et al. 2016, Remark 1, is scale 1 and bias 0; with the unit's own bias the
    normalization stays exact while biases are learned, which is ours.
    """
    dtype = jnp.result_type(scale, bias)
    arrays = jnp.asarray(scale, dtype), jnp.asarray(bias, dtype)
    mean, std = _moments(promote(arrays[0]), promote(arrays[1]))
    return mean.astype(dtype), std.astype(dtype)


@jax.custom_jvp
def _moments(scale: Values, bias: Values) -> tuple[Values, Values]:
    size = jnp.abs(scale)
    tails = _tails(_ratio(scale, bias))
    return jnp.maximum(bias, 0) + size * tails.first, size * _relative_std(tails)


@_moments.defjvp
def _moments_jvp(primals: Any, tangents: Any) -> Any:
    """By the moments' own closed forms: autodiff would stumble over |bias| and relu at bias 0."""
    scale, bias = primals
    unit = _Unit(*_unit(_ratio(scale, bias)))
    by_scale, by_bias = jnp.where(scale < 0, -tangents[0], tangents[0]), tangents[1]
    mean_tangent = unit.density * by_scale + unit.above * by_bias
    std_tangent = _std_by_scale(unit) * by_scale + _std_by_bias(unit) * by_bias
    return _moments(scale, bias), (mean_tangent, std_tangent)


class _Unit(NamedTuple):
    """Of relu(Z + u), Z ~ N(0, 1): phi(u), Phi(u), Phi(-u), the mean and the deviation."""

    density: Values
    above: Values
    below: Values
    mean: Values
    std: Values


@jax.custom_jvp
def _unit(u: Values) -> tuple[Values, ...]:
    """The fields of `_Unit`; a plain tuple."""
    tails = _tails(u)
    above = jnp.where(u > 0, 1 - tails.zeroth, tails.zeroth)
    below = jnp.where(u > 0, tails.zeroth, 1 - tails.zeroth)
    mean = jnp.maximum(u, 0) + tails.first
    return tails.density, above, below, mean, _relative_std(tails)


@_unit.defjvp
def _unit_jvp(primals: Any, tangents: Any) -> Any:
    """In terms of the function itself: derivatives of any order are right, at u = 0 too."""
    (u,), (tangent,) = primals, tangents
    values = _unit(u)
    unit = _Unit(*values)
    slopes = (-u * unit.density, unit.density, -unit.density, unit.above, _std_by_bias(unit))
    return values, tuple(slope * tangent for slope in slopes)


def _std_by_bias(unit: _Unit) -> Values:
    return jnp.where(unit.std <= STD_FLOOR, 0, unit.mean * unit.below / unit.std)


def _std_by_scale(unit: _Unit) -> Values:
    slope = (unit.above - unit.mean * unit.density) / unit.std
    return jnp.where(unit.std <= STD_FLOOR, STD_FLOOR, slope)


def _ratio(scale: Values, bias: Values) -> Values:
    """The ratio u = bias / |scale|; FARTHEST takes the place of infinity."""
    tiny = jnp.finfo(scale.dtype).tiny
    return jnp.clip(bias / jnp.maximum(jnp.abs(scale), tiny), -FARTHEST, FARTHEST)


class _Tails(NamedTuple):
    """u, phi(u), and the first E max(Z - |u|, 0)^n for n = 0, 1 and 2."""

    u: Values
    density: Values
    zeroth: Values
    first: Values
    second: Values


def _tails(u: Values) -> _Tails:
    """The tail beyond |u|: phi(u) times the integral of x^n exp(-x^2 / 2 - |u| x) over x > 0.

    Every term is positive, so nothing cancels. Nodes are stretched by 1 / (1 + |u|), which keeps
    the integrand one smooth hump for any u.
    """
    t = jnp.abs(u)[..., None]
    stretch = 1 / (1 + t)
    axes = (1,) * u.ndim
    y = jnp.asarray(_NODES, u.dtype).reshape(*axes, -1)
    hump = jnp.asarray(_WEIGHTS, u.dtype).reshape(*axes, -1) * jnp.exp(
        -jnp.square(stretch * y) / 2 - t * stretch * y
    )
    density = jnp.exp(-jnp.square(u) / 2) / math.sqrt(2 * math.pi)
    zeroth, first, second = (
        density * (stretch * (stretch * y) ** n * hump).sum(-1) for n in range(3)
    )
    return _Tails(u, density, zeroth, first, second)


def _relative_std(tails: _Tails) -> Values:
    """The standard deviation over the scale.

    Below zero the variance is E Y^2 - (E Y)^2; above, where Y is X but for its own tail, it is 1
    less what the tail takes away.
    """
    dead = tails.second - jnp.square(tails.first)
    alive = 1 - tails.second - jnp.square(tails.first) - 2 * tails.u * tails.first
    variance = jnp.where(tails.u > 0, alive, dead)
    return jnp.sqrt(jnp.maximum(variance, STD_FLOOR**2))
