"""Moments of a rectified Gaussian against mpmath in 40 digits, from dead to alive units."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxnorm.normprop import rectified_moments

# One compilation per shape, not one per operation.
compiled_moments = jax.jit(rectified_moments)

RATIOS = [-8, -6, -4, -2.5, -1, -0.3, -1e-3, 0, 1e-3, 0.3, 1, 2.5, 4, 6, 14, 200]
DEAD = [-9, -14, -40, -1e6]
# exp(-u^2 / 2) turns one rounding of u into u^2 roundings of the result; u^2 / 2 = 32 at most.
ROUNDINGS = 64 * 6e-8


def moments(p: jax.Array) -> jax.Array:
    return jnp.stack(rectified_moments(p[0], p[1]))


def mpmath_moments(scale: Any, bias: Any) -> tuple[Any, Any]:
    u = bias / scale
    mean = scale * (mp.npdf(u) + u * mp.ncdf(u))
    square = scale**2 * ((1 + u**2) * mp.ncdf(u) + u * mp.npdf(u))
    return mean, mp.sqrt(square - mean**2)


def exact_moments(points: Any) -> np.ndarray:
    """(mean, std) for each row (scale, bias)."""
    with mp.workdps(40):
        rows = [mpmath_moments(mp.mpf(float(s)), mp.mpf(float(b))) for s, b in points]
    return np.asarray(rows, np.float64)


def exact_derivatives(point: Any, order: int) -> np.ndarray:
    """Derivatives of (mean, std) by (scale, bias), of shape (2,) and `order` more axes of 2."""
    scale, bias = (float(x) for x in point)
    derivatives = np.empty((2,) * (order + 1))
    with mp.workdps(40):
        for index, *axes in itertools.product(range(2), repeat=order + 1):
            by_bias = sum(axes)
            derivative = mp.diff(
                lambda s, b, i=index: mpmath_moments(s, b)[i],
                (mp.mpf(abs(scale)), mp.mpf(bias)),
                (order - by_bias, by_bias),
            )
            derivatives[(index, *axes)] = float(derivative) * np.sign(scale) ** (order - by_bias)
    return derivatives


def points_of(scale: float) -> jax.Array:
    scales = jnp.full(len(RATIOS), scale, jnp.float32)
    return jnp.stack([scales, scales * jnp.asarray(RATIOS, jnp.float32)], 1)


@pytest.mark.parametrize("scale", [1e-6, 0.3, 1.0, 50.0])
def test_moments_equal_those_of_mpmath(scale: float) -> None:
    points = points_of(scale)
    values = np.stack(compiled_moments(*points.T), 1)
    np.testing.assert_allclose(values, exact_moments(points), rtol=ROUNDINGS)


@pytest.mark.parametrize("scale", [0.3, 50.0])
def test_gradients_equal_those_of_mpmath(scale: float) -> None:
    points = points_of(scale)
    gradients = jax.jit(jax.vmap(jax.jacobian(moments)))(points)
    exact = [exact_derivatives(point, order=1) for point in points]
    np.testing.assert_allclose(gradients, exact, rtol=ROUNDINGS, atol=1e-6)


@pytest.mark.parametrize(
    "point", [(1, 0), (0.5, 0), (-2, 0), (1, 1e-6), (1, 0.4), (-1, 0.4), (1, -2), (2, 5)]
)
def test_second_derivatives_equal_those_of_mpmath(point: tuple[float, float]) -> None:
    """Also at bias 0, where the tail beyond |bias| has a kink and the moments have none."""
    hessian = jax.jit(jax.hessian(moments))(jnp.asarray(point, jnp.float32))
    np.testing.assert_allclose(hessian, exact_derivatives(point, order=2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_dead_units_reach_the_floor(scale: float) -> None:
    """The gradients of their standardized values, (relu(x) - mean) / std, are finite."""
    biases = scale * jnp.asarray(DEAD, jnp.float32)
    mean, std = compiled_moments(scale, biases)
    np.testing.assert_allclose(std, 1e-9 * scale, rtol=1e-6)
    assert np.all((np.asarray(mean) >= 0) & (np.asarray(mean) < 1e-18))

    def standardized(s: jax.Array, b: jax.Array) -> jax.Array:
        mean, std = rectified_moments(s, b)
        return ((jax.nn.relu(b) - mean) / std).sum()

    for gradient in jax.jit(jax.grad(standardized, (0, 1)))(jnp.full(len(DEAD), scale), biases):
        assert np.isfinite(gradient).all()
    gradient = jax.jit(jax.jacobian(moments))(jnp.asarray([1.0, -14.0]))
    np.testing.assert_allclose(gradient[1], [1e-9, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("bias", "mean", "gradient"),
    [
        (2.0, 2.0, [[0, 1], [1, 0]]),
        (-2.0, 0.0, [[0, 0], [1e-9, 0]]),
        (0.0, 0.0, [[0.3989423, 0.5], [0.5838194, 0.3416658]]),
    ],
)
def test_scale_zero_has_the_documented_values(bias: float, mean: float, gradient: Any) -> None:
    """The gradients are limits from positive scales; 0.3416658 = mean/2/std at bias 0."""
    point = jnp.asarray([0.0, bias], jnp.float32)
    np.testing.assert_allclose(moments(point), [mean, 0.0], atol=1e-7)
    np.testing.assert_allclose(
        jax.jit(jax.jacobian(moments))(point), gradient, rtol=1e-6, atol=1e-7
    )


def test_a_negative_scale_equals_its_absolute_value() -> None:
    plus, minus = (jnp.asarray([scale, 0.5], jnp.float32) for scale in (2, -2))
    np.testing.assert_array_equal(moments(plus), moments(minus))
    by_scale = jax.jit(jax.jacobian(lambda p: moments(p)[1]))
    np.testing.assert_allclose(by_scale(minus), by_scale(plus) * jnp.asarray([-1.0, 1.0]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_are_computed_in_float32(dtype: str) -> None:
    biases = jnp.asarray([-4.0, 0.5, 4.0], jnp.dtype(dtype))
    mean, std = compiled_moments(1.0, biases)
    assert mean.dtype == std.dtype == jnp.dtype(dtype)
    exact = exact_moments([(1, b) for b in biases]).T
    values = np.asarray([mean, std], np.float64)
    np.testing.assert_allclose(values, exact, rtol=2.0**-8, atol=2.0**-14)
