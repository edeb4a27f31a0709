"""The gamma decay of a linear unit: mpmath's Gamma functions, samples, and the printed forms."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxnorm.theory import batch_norm

# Compiled as one, not an operation at a time.
linear_gamma_decay = jax.jit(batch_norm.linear_gamma_decay, static_argnames="mean_noise")
SIZES = [4, 5, 8, 32, 128, 1024, 10**6]
# Float32: the two terms of order 1/M nearly cancel (3 against 2.5), each after some ten operations.
FLOAT32 = {"rtol": 2e-5}


def inverse_moments(size):
    """E 1/s and E 1/s^2 in 60 digits: s^2 M is chi-squared with M - 1 degrees of freedom."""
    half = mp.mpf(size) / 2
    first = mp.sqrt(half) * mp.gammaprod([half - 1], [half - mp.mpf(1) / 2])
    second = half * mp.gammaprod([half - mp.mpf(3) / 2], [half - mp.mpf(1) / 2])
    return first, second


def exact(size, mean_noise):
    with mp.workdps(60):
        first, second = inverse_moments(size)
        mean = second / (2 * mp.mpf(size)) if mean_noise else 0
        return float((1 + second - 2 * first) / 2 + mean)


@pytest.mark.parametrize("mean_noise", [True, False])
def test_strength_is_that_of_mpmath(mean_noise):
    got = linear_gamma_decay(jnp.asarray(SIZES), mean_noise=mean_noise)
    np.testing.assert_allclose(got, [exact(size, mean_noise) for size in SIZES], **FLOAT32)
    each = jax.vmap(lambda size: linear_gamma_decay(size, mean_noise=mean_noise))(
        jnp.asarray(SIZES)
    )
    np.testing.assert_allclose(each, got, rtol=1e-6)


def test_slope_is_a_finite_difference():
    got = jax.grad(lambda size: linear_gamma_decay(size))(32.0)
    with mp.workdps(60):
        step = mp.mpf(10) ** -10
        sides = [sum_of(mp.mpf(32) + sign * step) for sign in (1, -1)]
        wanted = float((sides[0] - sides[1]) / (2 * step))
    np.testing.assert_allclose(got, wanted, **FLOAT32)


def sum_of(size):
    first, second = inverse_moments(size)
    return (1 + second - 2 * first) / 2 + second / (2 * size)


def test_large_batches_have_the_papers_limits_and_small_ones_none():
    np.testing.assert_allclose(4e6 * linear_gamma_decay(1e6), 3, rtol=1e-4)
    np.testing.assert_allclose(4e6 * linear_gamma_decay(1e6, mean_noise=False), 1, rtol=1e-4)
    assert np.isinf(linear_gamma_decay(jnp.array([1, 2, 3]))).all()
