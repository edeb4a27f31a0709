"""Simulations of covariances, Jacobians and mixtures of modes against the theory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers.normprop.bound import canonical_errors
from experiments.papers.normprop.jacobian import jacobian_grams, unit_rows
from experiments.papers.vcl.fig2 import Mixture, mixture_samples, train_unit
from jaxnorm.theory.normprop import canonical_error, expected_jacobian_gram
from jaxnorm.theory.vcl import mixture_kurtosis


@pytest.mark.slow
def test_the_sampled_error_is_proposition_1s_and_below_its_bound():
    key = jax.random.key(0)
    for common in (0.0, 0.5):
        weights = unit_rows(key, 16, 32, common)
        found = canonical_errors(key, weights, 2.0, 40_000)
        # Each of 240 entries has an error of about sigma^2 / sqrt(40,000).
        noise = 4 * np.sqrt(240 / 40_000)
        assert abs(float(found.error) - float(canonical_error(weights, 2.0))) < noise
        assert found.error < found.bound
        if common:
            assert found.coherence > 0.3


@pytest.mark.slow
def test_the_jacobians_gram_has_the_diagonal_of_theory_and_arcsines_beside():
    """Off the diagonal, E[1(u_i > 0) 1(u_j > 0)] = 1/4 + asin(r) / (2 pi) at correlation r."""
    weights = unit_rows(jax.random.key(1), 6, 12, 0.3)
    got = np.asarray(jacobian_grams(jax.random.key(2), weights, jax.nn.relu, 20_000))
    r = np.clip(np.asarray(weights @ weights.T, np.float64), -1, 1)
    both = 0.25 + np.arcsin(r) / (2 * np.pi)
    wanted = 2 * expected_jacobian_gram(jax.nn.relu) * both * r
    # A mean of values between 0 and 2.93 has a standard error of at most 0.0104.
    np.testing.assert_allclose(got, wanted, atol=0.045)


#: To the means' difference, at the start.
ANGLES = jnp.deg2rad(jnp.array([15.0, 35.0, 55.0, 70.0]))


def cosines(setting, *swept):
    """Returns the final |cos| by (prior, initial norm) and by angle, each with its own draws."""
    keys = jax.random.split(jax.random.key(0), 4)

    def run(p, start, key, angle):
        return train_unit(key, p, angle, setting._replace(start=start)).cosine[-1]

    seeds = jax.vmap(run, (None, None, 0, 0))
    priors, starts = jnp.array(swept).T
    return np.asarray(jax.jit(jax.vmap(seeds, (0, 0, None, None)))(priors, starts, keys, ANGLES))


@pytest.mark.slow
def test_a_rare_mode_is_merged_and_a_common_one_is_separated(standard_promotion):
    """vcl/fig2 with a quarter of its pairs, half of its steps and seeds, and its thresholds."""
    merged, separated = cosines(Mixture(groups=16, steps=2500), (0.1, 1.0), (0.25, 1.0))
    assert merged.max() < 0.1
    assert separated.min() > 0.95


def test_the_mixture_has_the_kurtosis_of_eq_9():
    x = np.asarray(mixture_samples(jax.random.key(1), 0.1, 6.0, 200_000), np.float64)
    parts = x.reshape(10, -1, 2) - x.mean(0)
    kurtoses = (parts**4).mean(1) / (parts**2).mean(1) ** 2
    wanted = [float(mixture_kurtosis(0.1, 36.0, 1.0)), 3.0]
    error = kurtoses.std(0, ddof=1) / np.sqrt(10)
    assert (np.abs(kurtoses.mean(0) - wanted) < 4 * error).all()
