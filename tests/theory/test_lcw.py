"""Activation shift and variance propagation against Monte Carlo and mpmath."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxnorm.theory import lcw

UNITS, INPUTS, SAMPLES = 4, 12, 40_000
WEIGHT = np.random.default_rng(0).normal(size=(UNITS, INPUTS))
W = jnp.asarray(WEIGHT, jnp.float32)
CENTERED = W - W.mean(1, keepdims=True)
#: Sums of a dozen float32 products.
ROUNDINGS = {"rtol": 2e-6, "atol": 2e-6}


def norms(weight: np.ndarray) -> np.ndarray:
    return np.linalg.norm(weight, axis=-1)


def cosines(mean: np.ndarray) -> np.ndarray:
    return np.asarray(WEIGHT @ mean / (norms(WEIGHT) * norms(mean)))


@pytest.mark.parametrize("gamma", [0.5, -0.5])
def test_the_shift_depends_on_the_angle(gamma: float) -> None:
    """Proposition 1 with gamma for the printed |gamma|, which is wrong where gamma < 0."""
    shift = lcw.activation_shift(W, gamma)
    expected = cosines(np.ones(INPUTS)) * norms(WEIGHT) * np.sqrt(INPUTS)
    np.testing.assert_allclose(shift, gamma * expected, **ROUNDINGS)
    sampled = WEIGHT @ np.random.default_rng(1).normal(gamma, 1, (INPUTS, SAMPLES))
    error = sampled.std(1) / np.sqrt(SAMPLES)
    assert (np.abs(sampled.mean(1) - shift) < 4 * error).all()
    printed_is_wrong = np.abs(sampled.mean(1) - abs(gamma) * expected) > 20 * error
    assert printed_is_wrong.all() == (gamma < 0)


def test_the_shift_of_a_vector_of_means() -> None:
    mean = np.random.default_rng(3).normal(size=INPUTS)
    expected = norms(WEIGHT) * norms(mean) * cosines(mean)
    shift = jax.vmap(lcw.activation_shift, (0, None))(W, jnp.asarray(mean, jnp.float32))
    np.testing.assert_allclose(shift, expected, **ROUNDINGS)
    assert lcw.activation_shift(W, jnp.zeros(INPUTS)).tolist() == [0] * UNITS


@pytest.mark.parametrize("weight", [W, CENTERED], ids=["plain", "centered"])
def test_moments_match_samples(weight: jax.Array) -> None:
    """Gamma-distributed inputs of mean 3 and variance 1.5: Proposition 4 needs no Gaussian."""
    random = np.random.default_rng(4)
    inputs = random.gamma(6, 0.5, (INPUTS, SAMPLES))
    z = np.asarray(weight, np.float64) @ inputs
    mean, variance = lcw.forward_moments(weight, 3.0, 1.5)
    assert (np.abs(z.mean(1) - mean) < 4 * z.std(1) / np.sqrt(SAMPLES)).all()
    # The variance of a sample variance follows from the kurtosis, which is at most 4 here.
    np.testing.assert_allclose(variance, z.var(1), rtol=4 * np.sqrt(3 / SAMPLES))
    if weight is CENTERED:
        np.testing.assert_allclose(mean, 0, atol=1e-5)


def gains_by_mpmath(f: Any, derivative: Any, stddev: float) -> tuple[float, float]:
    """Both gains by mpmath's quadrature, split at 0."""

    def mean(g: Any) -> Any:
        return mp.quad(lambda x: g(stddev * x) * mp.npdf(x), [-14, 0, 14])

    first = mean(f)
    forward = mean(lambda z: (f(z) - first) ** 2) / stddev**2
    return float(forward), float(mean(lambda z: derivative(z) ** 2))


def sigmoid(z: Any) -> Any:
    return 1 / (1 + mp.exp(-z))


def sigmoid_slope(z: Any) -> Any:
    return sigmoid(z) * (1 - sigmoid(z))


VARIANCES = {0.5: (0.05582, 0.05603), 1.0: (0.04338, 0.04484), 2.0: (0.02464, 0.02903)}
PRINTED = {0.5: (0.236, 0.237), 1.0: (0.208, 0.211), 2.0: (0.157, 0.170)}


@pytest.mark.kept("2.0")
@pytest.mark.parametrize("stddev", VARIANCES)
def test_gains_of_the_sigmoid(stddev: float) -> None:
    """The printed pairs are the square roots, to one unit of the third digit."""
    gains = lcw.variance_gain(jax.nn.sigmoid, stddev)
    np.testing.assert_allclose(gains, gains_by_mpmath(sigmoid, sigmoid_slope, stddev), rtol=1e-9)
    np.testing.assert_allclose(gains, VARIANCES[stddev], atol=5e-6)
    np.testing.assert_allclose(np.sqrt(gains), PRINTED[stddev], atol=1e-3)
    assert (np.asarray(PRINTED[stddev]) > 4 * np.asarray(gains)).all()


def test_gains_of_relu_match_proposition_6_at_any_scale() -> None:
    gains = lcw.variance_gain(jax.nn.relu, 7.0)
    np.testing.assert_allclose(gains, ((1 - 1 / np.pi) / 2, 0.5), rtol=1e-9)


@pytest.mark.parametrize(("constrained", "rtol"), [(True, 0.03), (False, 0.2)])
def test_the_gain_of_the_gradient_matches_a_wide_layer(constrained: bool, rtol: float) -> None:
    """One layer of 600 units in NumPy, whose random weights are rescaled by the pooled variance.

    Without the constraint all samples are alike: the means of the units dominate the variance. The
    tolerance is then that of E a^2 and of a variance of products over one sample of 600 units,
    1 / sqrt(300).
    """
    random = np.random.default_rng(5)
    a = 1 / (1 + np.exp(-random.normal(size=(600, 600))))
    inputs = a if constrained else np.repeat(a[:, :1], 600, 1)
    weight = random.normal(size=(600, 600))
    weight -= weight.mean(1, keepdims=True) if constrained else 0
    weight /= (weight @ inputs).std()
    gradient = (weight.T @ random.normal(size=(600, 600))) * a * (1 - a)
    expected = lcw.gradient_gain(jax.nn.sigmoid, constrained)
    np.testing.assert_allclose(gradient.var(), expected, rtol=rtol)
