"""Simulations of covariances, Jacobians and sample variances against what theory says."""

import jax
import numpy as np
import pytest

from experiments.simulations.covariance import canonical_errors, jacobian_grams, unit_rows
from jaxnorm.theory.normprop import canonical_error, expected_jacobian_gram


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


def test_the_jacobians_gram_has_the_diagonal_of_theory_and_arcsines_beside():
    """Off the diagonal E[1(u_i > 0) 1(u_j > 0)] = 1/4 + asin(r) / (2 pi) at the correlation r."""
    weights = unit_rows(jax.random.key(1), 6, 12, 0.3)
    got = np.asarray(jacobian_grams(jax.random.key(2), weights, jax.nn.relu, 20_000))
    r = np.clip(np.asarray(weights @ weights.T, np.float64), -1, 1)
    both = 0.25 + np.arcsin(r) / (2 * np.pi)
    wanted = 2 * expected_jacobian_gram(jax.nn.relu) * both * r
    # A mean of values between 0 and 2.93 has a standard error of at most 0.0104.
    np.testing.assert_allclose(got, wanted, atol=0.045)
