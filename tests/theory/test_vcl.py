"""Variances of sample variances against Monte Carlo, enumeration and quadrature in float64."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.theory import vcl

#: Python floats become float32 arrays: some ten roundings of 6e-8.
ROUNDINGS = 1e-6


def variance_of_sample_variances(values: Any, probabilities: Any, n: int) -> float:
    """By enumeration of all samples of a discrete distribution."""
    samples = np.array(list(itertools.product(values, repeat=n)))
    weights = np.array(list(itertools.product(probabilities, repeat=n))).prod(1)
    variances = samples.var(1, ddof=1)
    mean = weights @ variances
    return float(weights @ (variances - mean) ** 2)


def moments(values: Any, probabilities: Any) -> tuple[float, float]:
    """The fourth and the second moment about the mean."""
    x, w = np.asarray(values), np.asarray(probabilities)
    deviation = x - w @ x
    return float(w @ deviation**4), float(w @ deviation**2)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_sample_variances_of_a_discrete_distribution(n: int) -> None:
    distribution = (-1.0, 0.5, 3.0), (0.2, 0.7, 0.1)
    variance = vcl.sample_variance_variance(*moments(*distribution), n)
    expected = variance_of_sample_variances(*distribution, n)
    np.testing.assert_allclose(variance, expected, rtol=ROUNDINGS)


def test_a_variance_may_be_an_integer() -> None:
    """The square of 100,000 does not fit an int32."""
    variance = vcl.sample_variance_variance(3, 100_000, 5)
    np.testing.assert_allclose(variance, 3 / 5 - 1e10 * 2 / 20, rtol=ROUNDINGS)


def test_the_kurtosis_turns_at_the_threshold() -> None:
    """Below it the least kurtosis is at the least b / w, above it at the largest.

    The second case of Eq. 10 is thus not the ratio of the first, as printed.
    """
    between = jnp.linspace(0.0, 36.0, 50)
    threshold = vcl.separation_threshold()
    assert threshold == pytest.approx((1 - 3**-0.5) / 2)
    for p, least in ((0.1, 0), (threshold - 0.01, 0), (threshold + 0.01, 49), (0.25, 49)):
        for prior in (p, 1 - p):
            assert int(vcl.mixture_kurtosis(prior, between, 1.0).argmin()) == least
    np.testing.assert_allclose(vcl.mixture_kurtosis(threshold, between, 1.0), 3, atol=ROUNDINGS)


@pytest.mark.kept("point1")
@pytest.mark.parametrize("point", [(0.0, 4.0, 1.0), (0.5, 4.0, 1.0), (0.1, 0.0, 1.0), (0.3, 4, 0)])
def test_gradients_of_the_kurtosis_match_differences(point: tuple[float, ...]) -> None:
    with jax.enable_x64(True):
        at = jnp.asarray(point, jnp.float64)
        kurtosis = jax.jit(lambda q: vcl.mixture_kurtosis(*q))
        steps = 1e-6 * jnp.eye(3)
        expected = [(kurtosis(at + step) - kurtosis(at - step)) / 2e-6 for step in steps]
        # Central differences: 1e-16 / 1e-6 of rounding, 1e-12 of curvature.
        gradient = jax.jit(jax.grad(kurtosis))(at)
        np.testing.assert_allclose(gradient, jnp.stack(expected), atol=1e-7)


@pytest.mark.parametrize("point", [(0.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.0, 4.0, 0.0)])
def test_the_kurtosis_of_a_constant_is_finite(point: tuple[float, ...]) -> None:
    value, gradient = jax.value_and_grad(lambda q: vcl.mixture_kurtosis(*q))(jnp.asarray(point))
    assert float(value) == 3
    assert gradient.tolist() == [0, 0, 0]


#: Kurtosis and sampler of each distribution.
DISTRIBUTIONS: dict[str, tuple[float, Callable[..., np.ndarray]]] = {
    "gaussian": (3.0, lambda random, shape: random.normal(size=shape)),
    "uniform": (1.8, lambda random, shape: random.uniform(size=shape)),
    "two points": (1.0, lambda random, shape: random.choice([-1.0, 1.0], size=shape)),
}


@pytest.mark.parametrize("epsilon", [0.3, 0.5])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_bounds_hold(name: str, epsilon: float) -> None:
    """A frequency of 4000 pairs has a standard error of at most 0.008; four of them are allowed."""
    (kurtosis, sample), n = DISTRIBUTIONS[name], 100
    random = np.random.default_rng(2)
    variance = sample(random, 10**6).var()
    first, second = (sample(random, (4000, 2, n)).var(-1, ddof=1) / variance).T
    bound, probability = vcl.variance_ratio_bound(kurtosis, n, epsilon)
    frequency = ((1 - first / second) ** 2 <= float(bound)).mean()
    assert 0.4 < probability <= frequency + 0.032


def test_the_bound_is_that_of_two_variances_at_the_ends_of_their_interval() -> None:
    """Both are within a share e of the variance: their ratio is at most (1 + e) / (1 - e)."""
    e = np.array([0.1, 0.5, 0.9])
    bound, _ = vcl.variance_ratio_bound(3.0, 100, jnp.asarray(e))
    np.testing.assert_allclose(bound, ((1 + e) / (1 - e) - 1) ** 2, rtol=1e-5)


def test_a_negative_base_gives_probability_zero() -> None:
    """At n = 2 and kurtosis 3 the square as printed is (1 - 2 / e^2)^2, 49 at e = 0.5."""
    _, probability = vcl.variance_ratio_bound(3.0, 2, jnp.array([0.1, 0.5, 0.9]))
    assert probability.tolist() == [0, 0, 0]
    gradient = jax.grad(lambda e: vcl.variance_ratio_bound(3.0, 2, e)[1])(0.5)
    assert float(gradient) == 0
