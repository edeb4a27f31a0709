"""Q and C maps against closed forms, Hermite coefficients, finite differences and samples."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.theory import c_map, c_slope, q_map

COSINES = np.array([-0.7, 0.0, 0.9, 0.999, 1.0])


def rectified(x):
    """ReLU that no closed form of the library recognizes."""
    return jnp.maximum(x, 0)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_c_map_of_rectifiers_is_the_arc_cosine_kernel(slope):
    angle = np.arccos(COSINES)
    arc = (np.sin(angle) + (np.pi - angle) * COSINES) / np.pi
    expected = ((1 - slope) ** 2 * arc + 2 * slope * COSINES) / (1 + slope**2)
    slopes = ((1 - slope) ** 2 * (1 - angle / np.pi) + 2 * slope) / (1 + slope**2)
    leaky = functools.partial(jax.nn.leaky_relu, negative_slope=slope)
    np.testing.assert_allclose(c_map(leaky, COSINES), expected, atol=1e-9)
    np.testing.assert_allclose(c_slope(leaky, COSINES), slopes, atol=1e-9)


def test_maps_of_a_polynomial_by_its_hermite_coefficients():
    # x^3 - x + 2 = 2 He_0 + 2 He_1 + He_3, and E He_n^2 = n!.
    squares = np.array([4.0, 4.0, 0.0, 6.0])
    polynomial = np.polynomial.Polynomial(squares / squares.sum())

    def f(x):
        return x**3 - x + 2

    np.testing.assert_allclose(c_map(f, COSINES), polynomial(COSINES), atol=1e-11)
    np.testing.assert_allclose(c_slope(f, COSINES), polynomial.deriv()(COSINES), atol=1e-11)
    # E (q^1.5 z^3 - q^0.5 z + 2)^2 = 15 q^3 - 6 q^2 + q + 4.
    moments, q = np.polynomial.Polynomial([4, 1, -6, 15]), np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(q_map(f, q), moments(q), rtol=1e-10)


def test_c_map_of_tanh_by_monte_carlo():
    random = np.random.default_rng(0)
    x, z = random.normal(size=(2, 400_000))
    for c in (-0.6, 0.4):
        products = np.tanh(x) * np.tanh(c * x + math.sqrt(1 - c * c) * z)
        error = products.std() / len(x) ** 0.5 / np.square(np.tanh(x)).mean()
        expected = products.mean() / np.square(np.tanh(x)).mean()
        assert abs(c_map(jnp.tanh, c) - expected) < 4 * error


def test_a_slope_is_a_difference_of_the_map():
    step = 1e-4
    ends = c_map(jax.nn.gelu, np.array([0.5 - step, 0.5 + step]))
    assert c_slope(jax.nn.gelu, 0.5) == pytest.approx(np.diff(ends)[0] / (2 * step), abs=1e-7)


def test_maps_are_floats_also_in_a_trace():
    def scaled(x):
        slope = c_slope(rectified)
        assert isinstance(slope, float)
        return x * slope

    assert float(jax.jit(scaled)(jnp.float32(2.0))) == pytest.approx(2.0, abs=1e-6)
    assert isinstance(q_map(jnp.tanh, 2.0), float)
