"""Coherence and covariances against float64 NumPy and a solver, Jacobians by Monte Carlo."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import jaxnorm
from jaxnorm.theory import normprop

UNITS, INPUTS = 5, 8
WEIGHTS = np.random.default_rng(0).normal(size=(UNITS, INPUTS))
W = jnp.asarray(WEIGHTS, jnp.float32)
# Compiled as one program, not one operation at a time.
coherence, canonical_error, canonical_error_bound = FUNCTIONS = (
    jax.jit(normprop.coherence),
    jax.jit(normprop.canonical_error),
    jax.jit(normprop.canonical_error_bound),
)
#: A float32 result against a float64 one, after some dozen roundings.
ROUNDINGS = {"rtol": 3e-6}


def test_coherence_is_the_largest_cosine() -> None:
    pairs = itertools.combinations(WEIGHTS, 2)
    expected = max(abs(u @ v) / np.linalg.norm(u) / np.linalg.norm(v) for u, v in pairs)
    sizes = jnp.asarray([1e-30, 1e30, 1.0, 1e20, 1e-20])[:, None]
    for weights in (W, -3 * W, W * sizes):
        np.testing.assert_allclose(coherence(weights), expected, **ROUNDINGS)
    np.testing.assert_allclose(coherence(jnp.stack([W[0], -W[0]])), 1, **ROUNDINGS)
    assert float(coherence(W[:1])) == 0


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_the_error_is_the_distance_from_the_nearest_diagonal(sigma: float) -> None:
    """By a generic solver over the diagonals, and from the covariance of samples."""
    covariance = sigma**2 * WEIGHTS @ WEIGHTS.T
    distance = lambda d: ((covariance - np.diag(d)) ** 2).sum()  # noqa: E731
    optimum = optimize.minimize(distance, np.zeros(UNITS))
    error = canonical_error(W, sigma)
    np.testing.assert_allclose(error, np.sqrt(optimum.fun), rtol=1e-5)
    np.testing.assert_allclose(optimum.x, sigma**2 * (WEIGHTS**2).sum(1), rtol=1e-4)
    # Sigma counts squared; the Sigma = sigma W W' of section 3.4 is right for sigma = 1 only.
    samples = np.random.default_rng(1).normal(0, sigma, (INPUTS, 200_000))
    sampled = np.cov(WEIGHTS @ samples)
    off_diagonal = sampled - np.diag(np.diag(sampled))
    np.testing.assert_allclose(np.linalg.norm(off_diagonal), error, rtol=0.02)


def test_the_bound_holds_and_is_attained() -> None:
    weights = jax.random.normal(jax.random.key(0), (50, UNITS, INPUTS))
    scaled = weights * jnp.asarray([0.01, 0.1, 1.0, 2.0, 10.0])[None, :, None]
    weights = jnp.concatenate([weights, scaled])
    errors = jax.jit(jax.vmap(canonical_error))(weights)
    assert (errors <= jax.jit(jax.vmap(canonical_error_bound))(weights)).all()
    # The vertices of a simplex: all pairs have the same angle.
    simplex = jnp.eye(UNITS) - 1 / UNITS
    bound, error = canonical_error_bound(simplex, 3.0), canonical_error(simplex, 3.0)
    np.testing.assert_allclose(bound, error, rtol=1e-5)
    pairs = itertools.permutations((WEIGHTS**2).sum(1), 2)
    expected = 4 * float(coherence(W)) * np.sqrt(sum(a * b for a, b in pairs))
    np.testing.assert_allclose(canonical_error_bound(W, 2.0), expected, **ROUNDINGS)


@pytest.mark.parametrize("function", [canonical_error, canonical_error_bound])
def test_gradients_match_differences(function: Any) -> None:
    with jax.enable_x64(True):
        w = jnp.asarray(WEIGHTS)
        direction = jnp.asarray(np.random.default_rng(2).normal(size=w.shape))
        ahead, behind = (function(w + step * direction) for step in (1e-6, -1e-6))
        slope = (jax.jit(jax.grad(function))(w) * direction).sum()
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("weights", [jnp.zeros((3, 4)), jnp.eye(3, 4)], ids=["zero", "orthogonal"])
def test_gradients_are_finite_where_the_value_is_zero(weights: jax.Array) -> None:
    for function in FUNCTIONS:
        value, gradient = jax.jit(jax.value_and_grad(function))(weights)
        assert float(value) == 0
        assert np.isfinite(gradient).all()


@pytest.mark.kept("relu")
@pytest.mark.parametrize("activation", [jax.nn.relu, jnp.tanh, jax.nn.gelu])
def test_the_gram_of_the_jacobian_matches_samples(activation: Any) -> None:
    """Orthogonal unit-norm rows, by automatic differentiation at random inputs."""
    rows = jnp.asarray(np.linalg.qr(WEIGHTS.T)[0].T, jnp.float32)
    layer = lambda x: jaxnorm.normprop.standardized(activation)(rows @ x)  # noqa: E731
    x = jax.random.normal(jax.random.key(1), (20_000, INPUTS))
    jacobian = jax.jit(jax.vmap(jax.jacobian(layer)))(x)
    grams = np.einsum("sui,svi->suv", jacobian, jacobian)
    error = grams.std(0) / np.sqrt(len(x)) + 1e-6
    expected = jaxnorm.normprop.jacobian_factor(activation) ** 2 * np.eye(UNITS)
    # 25 entries within 4.5 standard errors each: it fails by chance once in 6000 draws.
    assert (np.abs(grams.mean(0) - expected) < 4.5 * error).all()
    if activation is jax.nn.relu:
        assert jaxnorm.normprop.jacobian_factor(activation) ** 2 == pytest.approx(1.4669, abs=5e-5)
