"""Activations of mean square 1, and the Gaussian moments of the error function's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxnorm import gaussian_moments, standardized

#: Gauss-Hermite nodes for smooth activations under N(0, 1).
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)
WEIGHTS = WEIGHTS / np.sqrt(2 * np.pi)


@pytest.mark.parametrize("activation", [jax.nn.silu, jnp.tanh, jax.lax.erf])
def test_without_centering_the_mean_square_is_one(activation: Any) -> None:
    preserving = standardized(activation, centered=False)
    with jax.enable_x64(True):
        values, plain = (np.asarray(f(jnp.asarray(NODES))) for f in (preserving, activation))
    assert (WEIGHTS * values**2).sum() == pytest.approx(1, abs=1e-7)
    np.testing.assert_allclose(values, plain / np.sqrt((WEIGHTS * plain**2).sum()), rtol=1e-7)


def test_the_constants_are_those_of_edm2_and_of_he() -> None:
    """Karras et al. 2024 divide silu by 0.596; half of the square of a rectifier is left."""
    x = jnp.float32(2.0)
    assert float(jax.nn.silu(x) / standardized(jax.nn.silu, centered=False)(x)) == pytest.approx(
        0.596, abs=5e-4
    )
    assert float(standardized(jax.nn.relu, centered=False)(x)) == pytest.approx(2 * 2**0.5, 1e-6)


@pytest.mark.parametrize(("alpha", "shift"), [(0.5, 0.0), (0.5, 0.3), (2.0, -1.0)])
def test_moments_of_the_error_function(alpha: float, shift: float) -> None:
    """As erf(x) = 2 F(sqrt(2) x) - 1, with F the distribution function of N(0, 1), they are
    probabilities of one and of two normal variables."""
    a, b = 2**0.5 * alpha, 2**0.5 * shift
    at = b / np.sqrt(1 + a**2)
    correlation = a**2 / (1 + a**2)
    one = scipy.stats.norm.cdf(at)
    both = scipy.stats.multivariate_normal.cdf(
        [at, at], cov=[[1, correlation], [correlation, 1]], abseps=1e-12, releps=1e-12
    )
    mean, std = gaussian_moments(lambda x: jax.lax.erf(alpha * x + shift))
    assert mean == pytest.approx(2 * one - 1, abs=1e-9)
    assert std**2 == pytest.approx(4 * (both - one**2), abs=1e-8)
    if shift == 0:
        arc = np.arcsin(2 * alpha**2 / (1 + 2 * alpha**2))
        assert std**2 == pytest.approx(2 / np.pi * arc, abs=1e-9)
