"""Generalization errors against regressions on samples and the differentiated G in 40 digits."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxnorm.theory import batch_norm

# Compiled as one, not an operation at a time.
generalization_error = jax.jit(batch_norm.generalization_error, static_argnames="kind")
INPUTS, NOISE = 600, 0.25
# A mean over 6 draws of N = 600; what differs from N = infinity is of the order 1/N.
DRAWS = 6
FLOAT32 = {"rtol": 5e-6, "atol": 5e-7}


def by_derivatives(load, noise, decay):
    """S d(zG)/dz - z^2 dG/dz with mpmath's differentiation of G as the spec has it."""

    def g(z):
        root = mp.sqrt((z + (1 + mp.sqrt(load)) ** 2) * (z + (1 - mp.sqrt(load)) ** 2))
        return (1 - load - z + root) / (2 * z)

    with mp.workdps(40):
        load, z = mp.mpf(load), mp.mpf(decay)
        return float(noise * mp.diff(lambda x: x * g(x), z) - z**2 * mp.diff(g, z))


def regression_errors(load, rectified=False):
    """The errors of least squares on fresh Gaussian problems."""
    errors = []
    for seed in range(DRAWS):
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


def check(errors, wanted):
    error = 4 * errors.std(ddof=1) / np.sqrt(DRAWS) + 4 * wanted / INPUTS
    assert abs(errors.mean() - wanted) < error < 0.2 * wanted


@pytest.mark.parametrize("load", [0.5, 1.6])
def test_linear_sgd_is_least_squares(load):
    check(regression_errors(load), float(generalization_error("sgd_linear", load, NOISE)))


@pytest.mark.parametrize("load", [0.6, 1.5])
def test_rectified_sgd_fits_the_positive_half(load):
    wanted = float(generalization_error("sgd_relu", load, NOISE))
    check(regression_errors(load, rectified=True), wanted)


def test_the_derivatives_of_g_are_taken_right():
    loads, decays = (0.05, 0.9, 1.0, 1.1, 3.0), (1e-4, 0.015625, 0.25, 5.0)
    grid = [(load, decay) for load in loads for decay in decays]
    load, decay = jnp.array(grid).T
    got = generalization_error("wn_linear", load, NOISE, decay)
    wanted = [by_derivatives(load, NOISE, decay) for load, decay in grid]
    # float32 represents the load to 6e-8, which 1 / (load - 1)^2 magnifies at 0.9 and 1.1.
    np.testing.assert_allclose(got, wanted, **FLOAT32)
    np.testing.assert_allclose(
        generalization_error("wn_linear", 1.0, 0.25, 0.25), 0.39039, atol=5e-6
    )


@pytest.mark.parametrize("load", [1.5, 30.0, 3000.0])
@pytest.mark.parametrize("decay", [1e-3, 1.0])
def test_the_bias_above_load_one_does_not_cancel(load, decay):
    """Without noise the error is z^2 G', far below one, of which 1 - a takes the digits."""
    got = generalization_error("wn_linear", load, 0.0, decay)
    np.testing.assert_allclose(got, by_derivatives(load, 0, decay), rtol=2e-5)


def test_slopes_are_finite_differences_at_load_one_too():
    for load, decay in ((0.5, 0.1), (1.0, 0.25), (1.0, 0.0156), (2.0, 0.1)):
        got = jax.jacrev(lambda x: generalization_error("wn_linear", x[0], NOISE, x[1]))(
            jnp.array([load, decay])
        )
        step = 1e-6
        wanted = (
            (by_derivatives(load + step, NOISE, decay) - by_derivatives(load - step, NOISE, decay)),
            (by_derivatives(load, NOISE, decay + step) - by_derivatives(load, NOISE, decay - step)),
        )
        np.testing.assert_allclose(got, np.array(wanted) / (2 * step), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["sgd_linear", "sgd_relu", "wn_linear"])
def test_no_value_and_no_slope_is_lost_where_the_error_is_finite(kind):
    loads = jnp.array([0.0, 0.5, 1.0, 1.5])
    for noise, decay in ((0.0, 0.0), (0.25, 0.1)):
        finite = jnp.isfinite(generalization_error(kind, loads, noise, decay))
        assert finite.all() or (kind, noise) == ("sgd_linear", 0.25)
        total = jax.grad(lambda a, *rest: generalization_error(kind, a, *rest).sum())
        slopes = total(loads, noise, decay)
        assert jnp.isfinite(slopes[finite]).all()


def test_poles_and_what_is_not_known():
    assert np.isinf(generalization_error("sgd_linear", 1.0, NOISE))
    assert np.isinf(generalization_error("wn_linear", 1.0, NOISE, 0.0))
    assert np.isinf(generalization_error("sgd_relu", 2.0, NOISE))
    assert np.isnan(generalization_error("sgd_relu", 2.1, NOISE))
    np.testing.assert_allclose(generalization_error("sgd_linear", 1.0, 0.0), 0)
    with pytest.raises(ValueError, match="wanted one of sgd_linear, sgd_relu, wn_linear"):
        batch_norm.generalization_error("bn_linear", 1.0, NOISE)
