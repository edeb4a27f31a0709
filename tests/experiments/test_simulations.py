"""Simulated training of one unit: its step, its exact error, and the theory of both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers.bn.loads import exact_error, simulate_training
from experiments.papers.bn.student import Student, Unit, step
from experiments.papers.bn.tab1 import simulate_online
from jaxnorm.theory.batch_norm import (
    OrderParameters,
    generalization_error,
    solve_order_parameters,
)

#: Each test here takes many seconds.
pytestmark = pytest.mark.slow

INPUTS, BATCH, NOISE, SEEDS = 128, 32, 0.25, 12
SAMPLES = np.array([64, 115, 230])
LOADS = SAMPLES / INPUTS


def test_a_step_is_equation_five(key):
    """Compares with float64 NumPy for one sample, with gamma's step divided by N."""
    inputs, rate, decay, gamma = 7, 0.6, 0.3, 1.4
    w, x = (np.asarray(jax.random.normal(key(), (inputs,)), np.float64) for _ in range(2))
    x *= np.sign(w @ x)  # an active unit
    y, size = 3.0, np.linalg.norm(w)
    student = np.sqrt(inputs) * gamma * w / size
    delta = y - student @ x
    weight = w + rate * delta * (gamma * np.sqrt(inputs) / size * x - student @ x / size**2 * w)
    scale = gamma + rate / inputs * (delta * np.sqrt(inputs) * w @ x / size - decay * gamma)
    numbers = (jnp.float32(number) for number in (rate, decay))
    before = Student(jnp.float32(w), jnp.float32(gamma))
    got = step(Unit("wn", True), before, jnp.float32(x)[None], jnp.full(1, y), *numbers)
    np.testing.assert_allclose(got.weight, weight, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got.gamma, scale, rtol=1e-5)


@pytest.mark.parametrize("rectified", [False, True])
def test_the_exact_error_is_that_of_samples(rectified):
    """Compares with 5e5 fresh (teacher, student) pairs."""
    length, cosine = 0.9, 0.7
    t, other = np.random.default_rng(0).standard_normal((2, 500_000))
    h = length * (cosine * t + np.sqrt(1 - cosine**2) * other)
    squares = (t - (np.maximum(h, 0) if rectified else h)) ** 2
    numbers = (jnp.float32(number) for number in (length, length * cosine))
    got = exact_error(Unit("bn", rectified), *numbers)
    error = 4 * squares.std() / np.sqrt(len(t))
    assert abs(squares.mean() - got) < error < 0.02 * got


@pytest.mark.slow
def test_the_mean_of_runs_follows_the_flow(key):
    """64 runs of 1,000 inputs agree within 3 standard errors and 2%, since N is finite."""
    start, rate, decay, every, points = (0.5, 0.1, 1.0), 1.5, 0.1, 250, 4
    path = simulate_online(
        key(), OrderParameters(*map(jnp.asarray, start)), rate, decay,
        unit=Unit("wn", rectified=True), runs=64, inputs=1000, steps=every * points, every=every,
    )  # fmt: skip
    times = jnp.arange(1, points + 1) * every / 1000
    flow = solve_order_parameters(start, times, rate, decay)
    for simulated, wanted in zip(path, flow, strict=True):
        runs = np.asarray(simulated, np.float64)
        allowed = 3 * runs.std(0, ddof=1) / np.sqrt(64) + 0.02 * np.abs(wanted)
        assert (np.abs(runs.mean(0) - wanted) < allowed).all()
    assert flow.R[-1] > 0.2  # it has gone somewhere: twice the start


@pytest.fixture(scope="module")
def train():
    """Returns ``(unit, decay, length) -> outcome`` of (loads, seeds); length in samples / N."""

    def run(unit, decay, length):
        return simulate_training(
            jax.random.split(jax.random.key(1), SEEDS), jnp.asarray(SAMPLES), NOISE, 0.7, decay,
            length * INPUTS // BATCH, unit=unit, inputs=INPUTS,
            most_samples=SAMPLES.max().item(), batch_size=BATCH,
        )  # fmt: skip

    return run


def mean_and_error(values):
    values = np.asarray(values, np.float64)
    return values.mean(1), values.std(1, ddof=1) / np.sqrt(values.shape[1])


def test_gamma_decay_ends_on_its_curve_and_batch_normalization_beyond(train):
    """Below load 1 the mean-free BN unit interpolates: its error is far above 1/(2M)'s curve."""
    decay = 1 / (2 * BATCH)
    curve = np.asarray(generalization_error("wn_linear", LOADS, NOISE, LOADS * decay))
    decayed = train(Unit("wn"), decay, 400).error
    mean, error = mean_and_error(decayed)
    assert (np.abs(mean - curve) < 3 * error + 0.03 * curve).all()
    short, long = (train(Unit("bn"), 0.0, length) for length in (60, 400))
    assert (mean_and_error(long.training_error)[0] < (1e-3, 4e-3, 0.2)).all()
    # Paired: both methods learn from the same samples.
    excess, error = mean_and_error(long.error - decayed)
    assert excess[1] > 4 * error[1]
    # Stopped early it passes through the curve, which is where the paper found it.
    assert mean_and_error(short.error)[0][1] < curve[1]
