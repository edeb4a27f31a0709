"""The rectified Gaussian against mpmath in 40 digits, from dead to alive, with gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxnorm import rectified_moments as eager_moments

# Compiled as one: a new shape then costs one compilation, not one an operation.
rectified_moments = jax.jit(eager_moments)

RATIOS = [-8, -6, -4, -2.5, -1, -0.3, -1e-3, 0, 1e-3, 0.3, 1, 2.5, 4, 6, 14, 200]
DEAD = [-9, -14, -40, -1e6]
SCALES = [1e-6, 0.3, 1.0, 50.0]
# exp(-u^2 / 2) turns one rounding of u into u^2 roundings of the result; u^2 / 2 = 32 at most.
ROUNDINGS = 64 * 6e-8


def exact_mp(s: Any, b: Any) -> tuple[Any, Any]:
    u = b / s
    mean = s * (mp.npdf(u) + u * mp.ncdf(u))
    square = s**2 * ((1 + u**2) * mp.ncdf(u) + u * mp.npdf(u))
    return mean, mp.sqrt(square - mean**2)


def exact(scale: Any, bias: Any) -> tuple[Any, Any]:
    with mp.workdps(40):
        return exact_mp(abs(mp.mpf(float(scale))), mp.mpf(float(bias)))


def exact_gradient(scale: Any, bias: Any) -> np.ndarray:
    """d(mean, std) / d(scale, bias) by mpmath in 40 digits."""
    with mp.workdps(40):
        at = mp.mpf(float(scale)), mp.mpf(float(bias))
        by = [
            float(mp.diff(lambda s, b, i=index: exact_mp(s, b)[i], at, order))
            for index in range(2)
            for order in ((1, 0), (0, 1))
        ]
    return np.reshape(by, (2, 2))


@pytest.mark.parametrize("scale", SCALES)
def test_moments_are_those_of_mpmath(scale: float) -> None:
    scales = jnp.full(len(RATIOS), scale, jnp.float32)
    biases = scales * jnp.asarray(RATIOS, jnp.float32)
    got = np.asarray(rectified_moments(scales, biases), np.float64)
    wanted = np.asarray([exact(s, b) for s, b in zip(scales, biases, strict=True)], np.float64).T
    np.testing.assert_allclose(got, wanted, rtol=ROUNDINGS)


@pytest.mark.parametrize("scale", [0.3, 50.0])
def test_gradients_are_those_of_differences(scale: float) -> None:
    scales = jnp.full(len(RATIOS), scale, jnp.float32)
    biases = scales * jnp.asarray(RATIOS, jnp.float32)
    jacobian = jax.jit(jax.vmap(jax.jacobian(lambda p: jnp.stack(rectified_moments(*p)))))
    got = np.asarray(jacobian(jnp.stack([scales, biases], 1)))
    wanted = np.asarray([exact_gradient(s, b) for s, b in zip(scales, biases, strict=True)])
    np.testing.assert_allclose(got, wanted, rtol=ROUNDINGS, atol=1e-6)


def exact_hessian(scale: float, bias: float) -> np.ndarray:
    """d2(mean, std) / d(scale, bias)2 by mpmath, as 2 x 2 x 2."""
    with mp.workdps(30):
        at = mp.mpf(abs(scale)), mp.mpf(bias)
        rows = []
        for index in range(2):
            by = [
                float(mp.diff(lambda s, b, i=index: exact_mp(s, b)[i], at, order))
                for order in ((2, 0), (1, 1), (0, 2))
            ]
            mixed = np.sign(scale) * by[1]
            rows.append([[by[0], mixed], [mixed, by[2]]])
    return np.asarray(rows)


@pytest.mark.parametrize(
    "point", [(1, 0), (0.5, 0), (-2, 0), (1, 1e-6), (1, 0.4), (-1, 0.4), (1, -2), (2, 5)]
)
def test_second_derivatives_are_those_of_mpmath(point: tuple[float, float]) -> None:
    """At the bias 0 too, where the tail beyond |bias| has a kink that the moments have not."""
    moments = lambda p: jnp.stack(eager_moments(p[0], p[1]))  # noqa: E731
    got = jax.jit(jax.hessian(moments))(jnp.asarray(point, jnp.float32))
    np.testing.assert_allclose(got, exact_hessian(*point), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_dead_units_meet_the_floor(scale: float) -> None:
    """And what a standardized unit does with it, (relu(x) - mean) / std, has finite gradients."""
    biases = scale * jnp.asarray(DEAD, jnp.float32)
    mean, std = rectified_moments(scale, biases)
    np.testing.assert_allclose(std, 1e-9 * scale, rtol=1e-6)
    assert np.all((np.asarray(mean) >= 0) & (np.asarray(mean) < 1e-18))

    def standardized(s: jax.Array, b: jax.Array) -> jax.Array:
        mean, std = rectified_moments(s, b)
        return ((jax.nn.relu(b) - mean) / std).sum()

    for gradient in jax.jit(jax.grad(standardized, (0, 1)))(jnp.full(len(DEAD), scale), biases):
        assert np.isfinite(gradient).all()
    by_scale, by_bias = jax.grad(lambda s, b: rectified_moments(s, b)[1], (0, 1))(1.0, -14.0)
    np.testing.assert_allclose([by_scale, by_bias], [1e-9, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("bias", "mean", "gradient"),
    [
        (2.0, 2.0, [[0, 1], [1, 0]]),
        (-2.0, 0.0, [[0, 0], [1e-9, 0]]),
        (0.0, 0.0, [[0.3989423, 0.5], [0.5838194, 0.3416658]]),
    ],
)
def test_scale_zero_has_the_documented_values(bias: float, mean: float, gradient: Any) -> None:
    """The gradients are the limits of positive scales; 0.3416658 = mean/2/std at bias 0."""
    at = jnp.asarray([0.0, bias], jnp.float32)
    value = rectified_moments(at[0], at[1])
    np.testing.assert_allclose(value, [mean, 0.0], atol=1e-7)
    got = jax.jit(jax.jacobian(lambda p: jnp.stack(rectified_moments(*p))))(at)
    np.testing.assert_allclose(got, gradient, rtol=1e-6, atol=1e-7)


def test_a_negative_scale_is_its_absolute_value() -> None:
    plus, minus = (
        rectified_moments(2.0, jnp.float32(0.5)),
        rectified_moments(-2.0, jnp.float32(0.5)),
    )
    np.testing.assert_array_equal(plus, minus)
    gradient = jax.grad(lambda s: rectified_moments(s, jnp.float32(0.5))[1])
    np.testing.assert_allclose(gradient(-2.0), -gradient(2.0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_are_computed_wide_and_stored(dtype: str) -> None:
    biases = jnp.asarray([-4.0, 0.5, 4.0], jnp.dtype(dtype))
    mean, std = jax.jit(rectified_moments)(1.0, biases)
    assert mean.dtype == std.dtype == jnp.dtype(dtype)
    wanted = np.asarray([exact(1, b) for b in biases], np.float64).T
    got = np.asarray([mean, std], np.float64)
    np.testing.assert_allclose(got, wanted, rtol=2.0**-8, atol=2.0**-14)
