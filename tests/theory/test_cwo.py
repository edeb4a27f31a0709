"""The constrained step against a generic solver, and reparametrization against autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import jaxnorm
from jaxnorm.theory import cwo

INPUTS, LEARNING_RATE, C = 7, 0.3, 2.0
random = np.random.default_rng(0)
WEIGHTS = random.normal(size=INPUTS)
WEIGHTS -= WEIGHTS.mean()
WEIGHTS *= np.sqrt(C) / np.linalg.norm(WEIGHTS)
GRADIENT = random.normal(size=INPUTS) + 1
W, G = jnp.asarray(WEIGHTS, jnp.float32), jnp.asarray(GRADIENT, jnp.float32)
#: A float32 result against a float64 one, after some ten roundings.
ROUNDINGS = {"rtol": 2e-6, "atol": 2e-6}


def solve(objective: object) -> np.ndarray:
    """The best of some SLSQP runs from random starts; SLSQP knows only the constraints."""
    constraints = [
        {"type": "eq", "fun": np.sum},
        {"type": "eq", "fun": lambda x: x @ x - C},
    ]
    starts = np.random.default_rng(1).normal(size=(5, INPUTS))
    options = {"ftol": 1e-14, "maxiter": 500}
    runs = [
        optimize.minimize(objective, x, method="SLSQP", constraints=constraints, options=options)
        for x in starts
    ]
    best = min((run for run in runs if run.success), key=lambda run: run.fun)
    return np.asarray(best.x)


def test_the_step_is_the_optimum_of_both_problems() -> None:
    """SLSQP is accurate to about 1e-6, the root of the accuracy of its objective."""
    step = cwo.constrained_step(W, G, LEARNING_RATE)
    target = WEIGHTS - LEARNING_RATE * GRADIENT
    nearest = solve(lambda x: ((x - target) ** 2).sum())
    np.testing.assert_allclose(step, nearest, atol=1e-5)
    linear = solve(lambda x: GRADIENT @ x + ((x - WEIGHTS) ** 2).sum() / (2 * LEARNING_RATE))
    np.testing.assert_allclose(step, linear, atol=1e-5)


def test_decay_and_step_length_need_the_radius() -> None:
    """Eqs. 13 and 14 as printed end on the unit sphere; with sqrt(c) they are the step."""
    centered = G - G.mean()
    decay, length = cwo.step_coefficients(W, G, LEARNING_RATE, C)
    expected = cwo.constrained_step(W, G, LEARNING_RATE, C)
    np.testing.assert_allclose((1 - decay) * W - length * centered, expected, **ROUNDINGS)
    norm = np.linalg.norm(WEIGHTS - LEARNING_RATE * (GRADIENT - GRADIENT.mean()))
    np.testing.assert_allclose(decay, 1 - np.sqrt(C) / norm, **ROUNDINGS)
    printed = W / norm - LEARNING_RATE / norm * centered
    np.testing.assert_allclose(jnp.square(printed).sum(), 1, rtol=1e-5)


def standardized(w: jax.Array) -> jax.Array:
    return (w - w.mean()) / w.std()


@pytest.mark.slow
def test_the_gradient_of_standardized_weights_matches_autodiff() -> None:
    raw = W + 0.7
    expected = jax.jit(lambda w: jax.vjp(standardized, w)[1](G)[0])(raw)
    gradient = jax.jit(cwo.standardization_gradient)(raw, G)
    np.testing.assert_allclose(gradient, expected, **ROUNDINGS)
    node = jaxnorm.WeightStandardized.from_kernel(raw, 0)
    kernel, vjp = jax.vjp(lambda k: type(node)(k, node.gain, node.fan_in_axes).effective(), raw)
    ratio = kernel / standardized(raw)  # the node divides by another norm
    np.testing.assert_allclose(ratio * gradient, vjp(G)[0], rtol=1e-4, atol=1e-5)
    # Eq. 18 as printed: the centered gradient at the standardized weights, without 1 / s.
    assert np.abs(expected - (G - G.mean())).max() > 0.1


ONES = jnp.ones(INPUTS)


@pytest.mark.parametrize(
    ("function", "weights", "value"),
    [
        (lambda w: cwo.constrained_step(w, ONES, 0.0).sum(), ONES, 0),
        (lambda w: cwo.standardization_gradient(w, G).sum(), ONES, 0),
        (lambda w: cwo.step_coefficients(w, ONES, 1.0)[0], 0 * ONES, 1),
        (lambda w: cwo.step_coefficients(w, ONES, 1.0)[1], 0 * ONES, 0),
    ],
    ids=["step", "standardization", "decay", "step length"],
)
def test_constant_weights_have_a_value_and_gradient_zero(
    function: object, weights: jax.Array, value: float
) -> None:
    result, gradient = jax.value_and_grad(function)(weights)  # type: ignore[arg-type]
    assert (float(result), gradient.tolist()) == (value, [0] * INPUTS)
