"""Rates, fixed points, learning rates and eigenvalues against quadrature and differences."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxnorm.theory.batch_norm import (
    effective_learning_rate,
    fixed_point,
    max_learning_rate,
    order_parameter_flow,
    solve_order_parameters,
    stability_eigenvalues,
)
from tests.theory import bn_oracles

STATES = [(1.0, 0.5, 1.0), (0.4, -0.3, 0.7), (1.6, 0.95, 2.0)]
FLOAT32 = {"rtol": 3e-6, "atol": 3e-6}
# One-sided differences of quadratures over 1e-6, whose slope changes by its root, 1e-3 / (2 pi).
DIFFERENCES = {"atol": 2e-3}


@pytest.mark.parametrize("state", STATES)
def test_flow_is_that_of_the_squares(state):
    got = order_parameter_flow(state, 0.7, 0.2)
    np.testing.assert_allclose(got, bn_oracles.normalized_flow(state, 0.7, 0.2), **FLOAT32)


def test_fixed_points_are_at_rest():
    """To first order in the learning rate for bn, to all orders for wn and sgd."""
    for decay in (0.0, 0.1, 1.0):
        point = fixed_point("bn", decay, length=1.3)
        np.testing.assert_allclose(point[:2], (1 / (2 * decay + 1), 1), rtol=1e-6)
        rates = bn_oracles.normalized_flow(np.array(point, float), 1e-4, decay)
        np.testing.assert_allclose(rates, 0, atol=1e-8 + 1e-8 * decay)
    rest = bn_oracles.normalized_flow(np.array(fixed_point("wn", length=0.6), float), 1.0, 0.0)
    np.testing.assert_allclose(rest, 0, atol=1e-9)
    plain = np.array(fixed_point("sgd")[:2], float)
    np.testing.assert_allclose(bn_oracles.plain_flow(plain, 1.0), 0, atol=1e-9)


@pytest.mark.parametrize(("kind", "decay"), [("bn", 0.1), ("bn", 0.5), ("wn", 0.0)])
def test_eigenvalues_are_those_of_the_numerical_jacobian(kind, decay):
    rate, length = 1.1, 1.2
    point = np.array(fixed_point(kind, decay, length), float)
    got = stability_eigenvalues(kind, rate, decay, length)

    def flow(state):
        return bn_oracles.normalized_flow(state, rate, decay)

    of_gamma, of_cosine = (bn_oracles.derivative(flow, point, axis)[axis] for axis in (0, 1))
    left_out = rate**2 * point[0] ** 2 / (2 * length**4) * (1 - point[0]) ** 2 / 2
    np.testing.assert_allclose(got.gamma, of_gamma, **DIFFERENCES)
    np.testing.assert_allclose(got.R - left_out, of_cosine, **DIFFERENCES)
    np.testing.assert_allclose(got.gamma, -rate * (decay + 0.5), rtol=1e-6)
    printed = rate * (decay * point[0] + 0.5 - point[0]) / point[0] - rate * decay * point[0]
    assert decay == 0 or abs(printed - of_gamma) > 20 * DIFFERENCES["atol"]


def test_eigenvalues_of_plain_sgd():
    for rate in (0.5, 1.9, 2.1):
        got = stability_eigenvalues("sgd", rate)
        jacobian = [
            bn_oracles.derivative(
                lambda x, rate=rate: bn_oracles.plain_flow(x, rate), np.ones(2), i
            )
            for i in (0, 1)
        ]
        np.testing.assert_allclose(
            (got.gamma, got.R), (jacobian[0][0], jacobian[1][1]), **DIFFERENCES
        )
        assert got.gamma == got.L


@pytest.mark.parametrize(("kind", "decay"), [("bn", 0.0), ("bn", 0.02), ("wn", 0.0), ("sgd", 0.0)])
def test_direction_is_stable_up_to_the_maximum_learning_rate(kind, decay):
    """On both sides of it, by differences; Table 1 as printed is half of it."""
    limit = float(max_learning_rate(kind, decay))
    np.testing.assert_allclose(limit, 2 + 4 * decay, rtol=1e-6)
    length = 1.0 if kind == "sgd" else 1.5
    one = float(effective_learning_rate(kind, 1.0, decay, length))
    slopes = []
    for effective in (0.55 * limit, 0.95 * limit, 1.05 * limit):
        rate = effective / one
        point = np.array(fixed_point(kind, decay, length), float)
        if kind == "sgd":
            point, flow = point[:2], lambda x, rate=rate: bn_oracles.plain_flow(x, rate)
        else:
            flow = lambda x, rate=rate: bn_oracles.normalized_flow(x, rate, decay)  # noqa: E731
        slopes.append(bn_oracles.derivative(flow, point, 1)[1])
    assert slopes[0] < 0
    assert slopes[1] < 0 < slopes[2]


def test_effective_learning_rates_are_those_of_the_table():
    got = [effective_learning_rate(kind, 0.6, 0.25, 2.0) for kind in ("bn", "wn", "sgd")]
    np.testing.assert_allclose(got, [0.1, 0.15, 0.6], rtol=1e-6)


@pytest.mark.slow
def test_solution_is_that_of_scipy_and_differentiable():
    start, rate, times = (0.5, 0.1, 1.0), 0.8, [0.0, 1.0, 3.0, 8.0]

    def by_scipy(decay):
        flow = lambda _, y: bn_oracles.normalized_flow(y, rate, decay)  # noqa: E731
        return solve_ivp(flow, (0, 8), start, t_eval=times, rtol=1e-7, atol=1e-8).y

    def final_cosine(decay):
        path = solve_order_parameters(start, jnp.array(times), rate, decay)
        return path.R[-1], path

    (_, path), slope = jax.jit(jax.value_and_grad(final_cosine, has_aux=True))(0.1)
    # The solver's own tolerance is 1e-5 a step, in float32.
    np.testing.assert_allclose(path, by_scipy(0.1), rtol=1e-4)
    wanted = (by_scipy(0.101) - by_scipy(0.099))[1, -1] / 0.002
    np.testing.assert_allclose(slope, wanted, rtol=1e-3)


def test_without_diffrax_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxnorm\[theory\]'"):
        solve_order_parameters((1.0, 0.5, 1.0), jnp.array([1.0]), 0.5)


def test_another_kind_is_an_error():
    for call in (fixed_point, max_learning_rate):
        with pytest.raises(ValueError, match=r"got the kind 'gn'; wanted one of bn, sgd, wn\."):
            call("gn")
