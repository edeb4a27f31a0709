"""Integrals, rates, fixed points and eigenvalues against quadrature and finite differences."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxnorm.theory import batch_norm
from jaxnorm.theory.batch_norm import (
    fixed_point,
    max_learning_rate,
    order_parameter_flow,
    solve_order_parameters,
)
from tests.theory import batch_norm_oracles as oracles

# Compiled as one program, not one operation at a time.
integrals = jax.jit(batch_norm.integrals)

POINTS = [(q, r) for q in (0.3, 0.8, 1.0, 2.5) for r in (-1.0, -0.6, 0.0, 0.6, 0.999, 1.0)]
STATES = [(1.0, 0.5, 1.0), (0.4, -0.3, 0.7), (1.6, 0.95, 2.0)]
# Values of order one, after some ten and some thirty float32 operations.
FLOAT32, FLOAT32_RATES = {"rtol": 1e-6, "atol": 1e-6}, {"rtol": 3e-6, "atol": 3e-6}
# One-sided differences of quadratures over 1e-6; the slope changes by its root, 1e-3 / (2 pi).
DIFFERENCES = {"atol": 2e-3}


def stacked_integrals(point):
    return jnp.stack(integrals(*point))


def test_integrals_match_quadrature():
    expected = [oracles.integrals(*point) for point in POINTS]
    np.testing.assert_allclose(np.array(integrals(*jnp.array(POINTS).T)).T, expected, **FLOAT32)


@pytest.mark.slow
@pytest.mark.parametrize("point", [(0.3, -0.6), (0.8, 0.6), (2.5, 0.9)])
def test_slopes_of_integrals_match_differences(point):
    slopes = jax.jacrev(stacked_integrals)(jnp.array(point))
    for axis in (0, 1):
        expected = oracles.derivative(
            lambda x: np.array(oracles.integrals(*x)), np.array(point), axis
        )
        np.testing.assert_allclose(slopes[:, axis], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("differentiate", [jax.jacfwd, jax.jacrev])
def test_slopes_at_full_overlap_are_the_finite_limits(differentiate):
    """One-sided differences over 1e-7: dA/dR falls as the root of the distance, 4e-4 / (2 pi)."""
    for q in (0.5, 1.0, 1.7):
        slopes = differentiate(lambda r, q=q: stacked_integrals((q, r)))(1.0)
        np.testing.assert_allclose(slopes, [q / 2, -q, -q / 2], rtol=1e-6)
        at_one, below = (np.array(oracles.integrals(q, r)) for r in (1, 1 - 1e-7))
        np.testing.assert_allclose((at_one - below) / 1e-7, slopes, atol=1e-3)


def test_integrals_continue_as_straight_lines_beyond_one():
    slopes = np.array([0.4, -0.8, -0.4])
    expected = np.array(integrals(0.8, 1.0)) + 0.25 * slopes
    np.testing.assert_allclose(integrals(0.8, 1.25), expected, **FLOAT32)
    np.testing.assert_allclose(jax.jacrev(lambda r: stacked_integrals((0.8, r)))(1.25), slopes)


@pytest.mark.parametrize("state", STATES)
def test_flow_matches_the_flow_of_the_squares(state):
    expected = oracles.normalized_flow(state, 0.7, 0.2)
    np.testing.assert_allclose(order_parameter_flow(state, 0.7, 0.2), expected, **FLOAT32_RATES)


def test_fixed_points_are_at_rest():
    """To first order in the learning rate for bn, to all orders for wn and sgd."""
    for decay in (0.0, 0.1, 1.0):
        point = fixed_point("bn", decay, length=1.3)
        np.testing.assert_allclose(point[:2], (1 / (2 * decay + 1), 1), rtol=1e-6)
        rates = oracles.normalized_flow(np.array(point, float), 1e-4, decay)
        np.testing.assert_allclose(rates, 0, atol=1e-8 + 1e-8 * decay)
    rates = oracles.normalized_flow(np.array(fixed_point("wn", length=0.6), float), 1.0, 0.0)
    np.testing.assert_allclose(rates, 0, atol=1e-9)
    plain = np.array(fixed_point("sgd")[:2], float)
    np.testing.assert_allclose(oracles.plain_flow(plain, 1.0), 0, atol=1e-9)


def flow_at_rest(kind, rate, decay, length):
    """The fixed point and the oracle's flow around it, of as many order parameters as it has."""
    point = np.array(fixed_point(kind, decay, length), float)
    if kind == "sgd":
        return point[:2], lambda state: oracles.plain_flow(state, rate)
    return point, lambda state: oracles.normalized_flow(state, rate, decay)


@pytest.mark.parametrize(("kind", "decay"), [("bn", 0.0), ("bn", 0.02), ("wn", 0.0), ("sgd", 0.0)])
def test_the_direction_is_stable_up_to_the_maximum_learning_rate(kind, decay):
    """By differences on both sides of the maximum; Table 1 as printed is half of it."""
    limit = float(max_learning_rate(kind, decay))
    np.testing.assert_allclose(limit, 2 + 4 * decay, rtol=1e-6)
    length = 1.0 if kind == "sgd" else 1.5
    # The effective rate over the rate: gamma / L^2, with gamma of the fixed point.
    scale = 1 / (2 * decay + 1) / length**2
    slopes = []
    for fraction in (0.55, 0.95, 1.05):
        point, flow = flow_at_rest(kind, fraction * limit / scale, decay, length)
        slopes.append(oracles.derivative(flow, point, 1)[1])
    assert max(slopes[:2]) < 0 < slopes[2]


@pytest.mark.slow
def test_the_solution_matches_scipy_and_is_differentiable():
    start, rate, times = (0.5, 0.1, 1.0), 0.8, [0.0, 1.0, 3.0, 8.0]

    def by_scipy(decay):
        flow = lambda _, y: oracles.normalized_flow(y, rate, decay)  # noqa: E731
        return solve_ivp(flow, (0, 8), start, t_eval=times, rtol=1e-7, atol=1e-8).y

    def final_cosine(decay):
        path = solve_order_parameters(start, jnp.array(times), rate, decay)
        return path.R[-1], path

    (_, path), slope = jax.jit(jax.value_and_grad(final_cosine, has_aux=True))(0.1)
    # The tolerance of the solver is 1e-5 per step, in float32.
    np.testing.assert_allclose(path, by_scipy(0.1), rtol=1e-4)
    expected = (by_scipy(0.101) - by_scipy(0.099))[1, -1] / 0.002
    np.testing.assert_allclose(slope, expected, rtol=1e-3)


def test_an_error_names_the_extra_that_installs_diffrax(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(ImportError, match=r"jaxnorm\[theory\]"):
        solve_order_parameters((1.0, 0.5, 1.0), jnp.array([1.0]), 0.5)
