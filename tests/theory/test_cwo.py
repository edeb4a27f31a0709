"""The constrained step against a generic solver, and reparametrization against autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

import jaxnorm
from jaxnorm.theory import cwo

N, LEARNING_RATE, C = 7, 0.3, 2.0
DRAW = np.random.default_rng(0)
WEIGHTS = DRAW.normal(size=N)
WEIGHTS = WEIGHTS - WEIGHTS.mean()
WEIGHTS *= np.sqrt(C) / np.linalg.norm(WEIGHTS)
GRADIENT = DRAW.normal(size=N) + 1
W, G = jnp.asarray(WEIGHTS, jnp.float32), jnp.asarray(GRADIENT, jnp.float32)
#: A float32 result against a float64 one, after some ten roundings.
ROUNDINGS = {"rtol": 2e-6, "atol": 2e-6}


def solve(objective: object) -> np.ndarray:
    """SLSQP from the best of some random starts; it knows the constraints, no closed form."""
    constraints = [
        {"type": "eq", "fun": np.sum},
        {"type": "eq", "fun": lambda x: x @ x - C},
    ]
    starts = np.random.default_rng(1).normal(size=(5, N))
    options = {"ftol": 1e-14, "maxiter": 500}
    runs = [
        optimize.minimize(objective, x, method="SLSQP", constraints=constraints, options=options)
        for x in starts
    ]
    best = min((run for run in runs if run.success), key=lambda run: run.fun)
    return np.asarray(best.x)


def test_the_step_is_the_solvers_optimum() -> None:
    """Of Eq. 9, and of the linearized loss with the distance to w. SLSQP is right to 1e-6 or so,
    the root of the precision that it asks of the objective."""
    got = cwo.constrained_step(W, G, LEARNING_RATE)
    target = WEIGHTS - LEARNING_RATE * GRADIENT
    nearest = solve(lambda x: ((x - target) ** 2).sum())
    np.testing.assert_allclose(got, nearest, atol=1e-5)
    linear = solve(lambda x: GRADIENT @ x + ((x - WEIGHTS) ** 2).sum() / (2 * LEARNING_RATE))
    np.testing.assert_allclose(got, linear, atol=1e-5)


def test_decay_and_step_length_need_the_radius() -> None:
    """Eqs. 13 and 14 as printed end on the unit sphere; with sqrt(c) they are the step."""
    centered = G - G.mean()
    decay, step = cwo.step_coefficients(W, G, LEARNING_RATE, C)
    wanted = cwo.constrained_step(W, G, LEARNING_RATE, C)
    np.testing.assert_allclose((1 - decay) * W - step * centered, wanted, **ROUNDINGS)
    length = np.linalg.norm(WEIGHTS - LEARNING_RATE * (GRADIENT - GRADIENT.mean()))
    np.testing.assert_allclose(decay, 1 - np.sqrt(C) / length, **ROUNDINGS)
    printed = W / length - LEARNING_RATE / length * centered
    np.testing.assert_allclose(jnp.square(printed).sum(), 1, rtol=1e-5)


def standardized(w: jax.Array) -> jax.Array:
    return (w - w.mean()) / w.std()


def test_the_gradient_of_standardized_weights_is_autodiffs() -> None:
    raw = W + 0.7
    wanted = jax.jit(lambda w: jax.vjp(standardized, w)[1](G)[0])(raw)
    got = jax.jit(cwo.standardization_gradient)(raw, G)
    np.testing.assert_allclose(got, wanted, **ROUNDINGS)
    node = jaxnorm.WeightStandardized.from_kernel(raw, 0)
    kernel, back = jax.vjp(lambda k: type(node)(k, node.gain, node.fan_in_axes).effective(), raw)
    ratio = kernel / standardized(raw)  # Its convention of the variance.
    np.testing.assert_allclose(ratio * got, back(G)[0], rtol=1e-4, atol=1e-5)
    # Eq. 18 as printed: the centered gradient at the standardized weights, without 1 / s.
    assert np.abs(wanted - (G - G.mean())).max() > 0.1


def test_where_there_is_no_direction_all_is_zero_and_finite() -> None:
    ones = jnp.ones(N)
    f = lambda w: cwo.constrained_step(w, ones, 0.0).sum()  # noqa: E731
    assert jax.grad(f)(ones).tolist() == [0] * N
    g = lambda w: cwo.standardization_gradient(w, G).sum()  # noqa: E731
    value, gradient = jax.value_and_grad(g)(ones)
    assert (float(value), gradient.tolist()) == (0, [0] * N)
    decay, step = cwo.step_coefficients(jnp.zeros(N), ones, 1.0)
    assert (float(decay), float(step)) == (1, 0)
    h = lambda w: sum(cwo.step_coefficients(w, ones, 1.0))  # noqa: E731
    assert jax.grad(h)(jnp.zeros(N)).tolist() == [0] * N
