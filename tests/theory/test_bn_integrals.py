"""The ReLU student's integrals against quadrature and samples, and their slopes up to R = 1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm.theory import batch_norm
from tests.theory import bn_oracles

# Compiled as one, not an operation at a time.
integrals = jax.jit(batch_norm.integrals)

POINTS = [(q, r) for q in (0.3, 0.8, 1.0, 2.5) for r in (-1.0, -0.6, 0.0, 0.6, 0.999, 1.0)]
# Values of order one after some ten float32 operations.
FLOAT32 = {"rtol": 1e-6, "atol": 1e-6}


def test_integrals_are_those_of_quadrature():
    got = np.array(integrals(*jnp.array(POINTS).T)).T
    wanted = [bn_oracles.integrals(*point) for point in POINTS]
    np.testing.assert_allclose(got, wanted, **FLOAT32)


@pytest.mark.parametrize(("q", "r"), [(0.3, -0.6), (0.8, 0.6), (2.5, 0.9)])
def test_slopes_are_finite_differences(q, r):
    slopes = jax.jacrev(lambda x: jnp.stack(integrals(x[0], x[1])))(jnp.array([q, r]))
    for axis in (0, 1):
        wanted = bn_oracles.derivative(
            lambda x: np.array(bn_oracles.integrals(*x)), np.array([q, r]), axis
        )
        np.testing.assert_allclose(slopes[:, axis], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("differentiate", [jax.jacfwd, jax.jacrev])
def test_slopes_at_full_overlap_are_the_finite_limits(differentiate):
    """One-sided differences over 1e-7: dA/dR falls as the root of the distance, 4e-4 / (2 pi)."""
    for q in (0.5, 1.0, 1.7):
        got = differentiate(lambda r, q=q: jnp.stack(integrals(q, r)))(1.0)
        np.testing.assert_allclose(got, [q / 2, -q, -q / 2], rtol=1e-6)
        ends = [np.array(bn_oracles.integrals(q, r)) for r in (1, 1 - 1e-7)]
        np.testing.assert_allclose((ends[0] - ends[1]) / 1e-7, got, atol=1e-3)


def test_beyond_one_the_integrals_go_on_in_straight_lines():
    slopes = np.array([0.4, -0.8, -0.4])
    got = np.array(integrals(0.8, 1.25))
    np.testing.assert_allclose(got, np.array(integrals(0.8, 1.0)) + 0.25 * slopes, **FLOAT32)
    np.testing.assert_allclose(jax.jacrev(lambda r: jnp.stack(integrals(0.8, r)))(1.25), slopes)
