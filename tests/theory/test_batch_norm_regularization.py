"""Gamma decay and generalization errors against mpmath in 40 digits and regressions on samples."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxnorm.theory import batch_norm

# Compiled as one program, not one operation at a time.
linear_gamma_decay = jax.jit(batch_norm.linear_gamma_decay, static_argnames="mean_noise")
generalization_error = jax.jit(batch_norm.generalization_error, static_argnames="kind")
BATCHES = jnp.array([4, 5, 8, 32, 128, 1024, 10**6])
# Two terms of order 1/M nearly cancel (3 against 2.5), each after some ten float32 operations.
CANCELLATION = {"rtol": 2e-5}
FLOAT32 = {"rtol": 5e-6, "atol": 5e-7}
# A mean over 6 problems of N = 600; the distance from N = infinity is of order 1/N.
INPUTS, NOISE, PROBLEMS = 600, 0.25, 6


def decay_by_mpmath(size, mean_noise=True):
    """zeta by the moments of 1/s: s^2 M is chi-squared with M - 1 degrees of freedom."""
    half = mp.mpf(size) / 2
    first = mp.sqrt(half) * mp.gammaprod([half - 1], [half - mp.mpf(1) / 2])
    second = half * mp.gammaprod([half - mp.mpf(3) / 2], [half - mp.mpf(1) / 2])
    return (1 + second - 2 * first) / 2 + (second / (2 * mp.mpf(size)) if mean_noise else 0)


@pytest.mark.parametrize("mean_noise", [True, False])
def test_the_decay_matches_mpmath(mean_noise):
    strength = lambda size: linear_gamma_decay(size, mean_noise=mean_noise)  # noqa: E731
    with mp.workdps(60):
        expected = [float(decay_by_mpmath(int(size), mean_noise)) for size in BATCHES]
    np.testing.assert_allclose(strength(BATCHES), expected, **CANCELLATION)
    np.testing.assert_allclose(jax.vmap(strength)(BATCHES), strength(BATCHES), rtol=1e-6)


def test_the_slope_of_the_decay_matches_a_difference():
    slope = jax.grad(lambda size: linear_gamma_decay(size))(32.0)
    with mp.workdps(60):
        step = mp.mpf(10) ** -10
        ahead, behind = (decay_by_mpmath(32 + sign * step) for sign in (1, -1))
        expected = float((ahead - behind) / (2 * step))
    np.testing.assert_allclose(slope, expected, **CANCELLATION)


def test_the_decay_has_the_papers_limits_for_large_batches_and_is_infinite_for_small_ones():
    np.testing.assert_allclose(4e6 * linear_gamma_decay(1e6), 3, rtol=1e-4)
    np.testing.assert_allclose(4e6 * linear_gamma_decay(1e6, mean_noise=False), 1, rtol=1e-4)
    assert np.isinf(linear_gamma_decay(jnp.array([1, 2, 3]))).all()


def error_by_mpmath(load, noise, decay):
    """S d(zG)/dz - z^2 dG/dz by mpmath's differentiation of G."""

    def g(z):
        root = mp.sqrt((z + (1 + mp.sqrt(load)) ** 2) * (z + (1 - mp.sqrt(load)) ** 2))
        return (1 - load - z + root) / (2 * z)

    with mp.workdps(40):
        load, z = mp.mpf(load), mp.mpf(decay)
        return float(noise * mp.diff(lambda x: x * g(x), z) - z**2 * mp.diff(g, z))


def regression_errors(load, rectified=False):
    """Errors of least squares on random Gaussian problems."""
    errors = []
    for seed in range(PROBLEMS):
        random = np.random.default_rng(seed)
        x = random.standard_normal((round(load * INPUTS), INPUTS)) / np.sqrt(INPUTS)
        teacher = random.standard_normal(INPUTS)
        teacher *= np.sqrt(INPUTS) / np.linalg.norm(teacher)
        y = x @ teacher + np.sqrt(NOISE) * random.standard_normal(len(x))
        if rectified:
            x, y = x[y > 0], y[y > 0]
        student = np.linalg.lstsq(x, y, rcond=None)[0]
        square, overlap = student @ student / INPUTS, student @ teacher / INPUTS
        errors.append(1 + square / 2 - overlap if rectified else 1 + square - 2 * overlap)
    return np.array(errors)


@pytest.mark.kept("linear-0.5", "relu-1.5")
@pytest.mark.parametrize(
    ("kind", "load"),
    [("sgd_linear", 0.5), ("sgd_linear", 1.6), ("sgd_relu", 0.6), ("sgd_relu", 1.5)],
)
def test_errors_of_sgd_match_least_squares(kind, load):
    """A ReLU student fits the samples with a positive target."""
    errors = regression_errors(load, rectified=kind == "sgd_relu")
    expected = float(generalization_error(kind, load, NOISE))
    tolerance = 4 * errors.std(ddof=1) / np.sqrt(PROBLEMS) + 4 * expected / INPUTS
    assert abs(errors.mean() - expected) < tolerance < 0.2 * expected


def test_errors_of_weight_normalization_match_mpmath():
    loads, decays = (0.05, 0.9, 1.0, 1.1, 3.0), (1e-4, 0.015625, 0.25, 5.0)
    grid = [(load, decay) for load in loads for decay in decays]
    load, decay = jnp.array(grid).T
    errors = generalization_error("wn_linear", load, NOISE, decay)
    # float32 represents the load to 6e-8, which 1 / (load - 1)^2 magnifies at 0.9 and 1.1.
    expected = [error_by_mpmath(load, NOISE, decay) for load, decay in grid]
    np.testing.assert_allclose(errors, expected, **FLOAT32)
    by_ridge_regression = generalization_error("wn_linear", 1.0, 0.25, 0.25)
    np.testing.assert_allclose(by_ridge_regression, 0.39039, atol=5e-6)


@pytest.mark.parametrize("load", [1.5, 30.0, 3000.0])
@pytest.mark.parametrize("decay", [1e-3, 1.0])
def test_the_bias_above_load_one_has_no_cancellation(load, decay):
    """Without noise the error is -z^2 dG/dz, far below 1; 1 - a would cancel its digits."""
    error = generalization_error("wn_linear", load, 0.0, decay)
    np.testing.assert_allclose(error, error_by_mpmath(load, 0, decay), rtol=2e-5)


@pytest.mark.parametrize("point", [(0.5, 0.1), (1.0, 0.25), (1.0, 0.0156), (2.0, 0.1)])
def test_slopes_of_errors_match_differences(point):
    def error(load, decay):
        return error_by_mpmath(load, NOISE, decay)

    slopes = jax.jacrev(lambda x: generalization_error("wn_linear", x[0], NOISE, x[1]))
    (load, decay), step = point, 1e-6
    differences = (
        error(load + step, decay) - error(load - step, decay),
        error(load, decay + step) - error(load, decay - step),
    )
    expected = np.array(differences) / (2 * step)
    np.testing.assert_allclose(slopes(jnp.array(point)), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.kept("sgd_relu")
@pytest.mark.parametrize("kind", ["sgd_linear", "sgd_relu", "wn_linear"])
def test_slopes_are_finite_wherever_errors_are(kind):
    loads = jnp.array([0.0, 0.5, 1.0, 1.5])
    for noise, decay in ((0.0, 0.0), (0.25, 0.1)):
        finite = jnp.isfinite(generalization_error(kind, loads, noise, decay))
        assert finite.all() or (kind, noise) == ("sgd_linear", 0.25)
        total = jax.grad(lambda a, s, z: generalization_error(kind, a, s, z).sum())
        assert jnp.isfinite(total(loads, noise, decay)[finite]).all()


def test_errors_are_infinite_at_the_poles_and_nan_where_unknown():
    assert np.isinf(generalization_error("sgd_linear", 1.0, NOISE))
    assert np.isinf(generalization_error("wn_linear", 1.0, NOISE, 0.0))
    assert np.isinf(generalization_error("sgd_relu", 2.0, NOISE))
    assert np.isnan(generalization_error("sgd_relu", 2.1, NOISE))
    np.testing.assert_allclose(generalization_error("sgd_linear", 1.0, 0.0), 0)
