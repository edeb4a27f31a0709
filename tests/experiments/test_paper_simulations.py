"""Simulations of the papers' figures against the theory, and against NumPy in float64."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers.bn import fig1, tab1
from experiments.papers.bn.student import Student, Unit, step
from experiments.papers.cwo import signal
from experiments.papers.lcw.fig4 import pooled_ratio, sigmoid_chain
from experiments.papers.normprop.bound import canonical_errors
from experiments.papers.normprop.depth import Settings, propagated_chain
from experiments.papers.normprop.jacobian import jacobian_grams, unit_rows
from experiments.papers.vcl import fig2
from experiments.papers.vcl.modes import LEVEL, critical_dip, multimodal
from jaxnorm.normprop import jacobian_factor
from jaxnorm.theory.batch_norm import generalization_error, solve_order_parameters
from jaxnorm.theory.lcw import gradient_gain
from jaxnorm.theory.vcl import mixture_kurtosis

# Luo et al.: one unit.


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("rectified", [False, True])
def test_the_exact_error_is_that_of_samples(rectified):
    """Compares with 5e5 fresh (teacher, student) pairs."""
    length, cosine = 0.9, 0.7
    t, other = np.random.default_rng(0).standard_normal((2, 500_000))
    h = length * (cosine * t + np.sqrt(1 - cosine**2) * other)
    squares = (t - (np.maximum(h, 0) if rectified else h)) ** 2
    numbers = (jnp.float32(number) for number in (length, length * cosine))
    got = fig1.exact_error(Unit("bn", rectified), *numbers)
    error = 4 * squares.std() / np.sqrt(len(t))
    assert abs(squares.mean() - got) < error < 0.02 * got


@pytest.mark.slow
def test_the_mean_of_runs_follows_the_flow(key):
    """64 runs of 1,000 inputs agree within 3 standard errors and 2%, since N is finite."""
    settings = tab1.Settings(inputs=1000, runs=64, learning_rate=1.5, duration=1)
    path = tab1.simulate_online(settings, Unit("wn", rectified=True), 0.1, key())
    flow = solve_order_parameters(tab1.START, jnp.arange(1, 11) / 10, 1.5, 0.1)
    for simulated, wanted in zip(path, flow, strict=True):
        runs = np.asarray(simulated, np.float64)
        allowed = 3 * runs.std(0, ddof=1) / np.sqrt(64) + 0.02 * np.abs(wanted)
        assert (np.abs(runs.mean(0) - wanted) < allowed).all()
    assert flow.R[-1] > 0.2  # it has gone somewhere: twice the start


@pytest.mark.slow
def test_gamma_decay_ends_on_its_curve_and_batch_normalization_beyond():
    """Below load 1 the mean-free BN unit interpolates: its error is far above 1/(2M)'s curve."""
    loads, decay = np.array([0.5, 0.9, 1.8]), 1 / 64
    settings = fig1.Settings(128, tuple(loads), 12, (), batch_size=32, learning_rate=0.7)

    def mean_and_error(values):
        return values.mean(1), values.std(1, ddof=1) / np.sqrt(12)

    def train(unit, decay, length):
        outcome = fig1.simulate_training(settings, unit, decay, length * 128 // 32)
        return jax.tree.map(np.float64, outcome)

    curve = np.asarray(generalization_error("wn_linear", loads, fig1.NOISE, loads * decay))
    decayed = train(Unit("wn"), decay, 400).error
    mean, error = mean_and_error(decayed)
    assert (np.abs(mean - curve) < 3 * error + 0.03 * curve).all()
    short, long = (train(Unit("bn"), 0.0, length) for length in (60, 400))
    assert (long.training_error.mean(1) < (2e-3, 4e-3, 0.2)).all()
    # Paired: both methods learn from the same samples.
    excess, error = mean_and_error(long.error - decayed)
    assert excess[1] > 4 * error[1]
    # Stopped early it passes through the curve, which is where the paper found it.
    assert short.error.mean(1)[1] < curve[1]


# Arpit et al. and Ikami et al.: chains of random layers.

#: E relu and the deviation of relu under a standard normal.
MEAN, DEVIATION = 1 / np.sqrt(2 * np.pi), np.sqrt(0.5 - 1 / (2 * np.pi))


@pytest.mark.parametrize("centered", [False, True])
def test_standardized_layers_are_those_of_numpy_with_weights_of_its_own(centered):
    settings = Settings(depth=6, width=128, samples=2000)
    random, sizes = np.random.default_rng(0), []
    a = random.normal(size=(settings.samples, settings.width))
    for _ in range(settings.depth):
        w = random.normal(size=(settings.width, settings.width))
        w -= w.mean(1, keepdims=True) if centered else 0
        z = a @ (w / np.linalg.norm(w, axis=1, keepdims=True)).T
        sizes.append(np.hypot(np.sqrt((z.mean(0) ** 2).mean()), np.sqrt(z.var(0).mean())))
        a = (np.maximum(z, 0) - MEAN) / DEVIATION
    found = propagated_chain(settings, jax.nn.relu, centered, jax.random.key(1))
    # Other weights: sizes of 128 units, which grow or fall together.
    np.testing.assert_allclose(np.hypot(*found), sizes, rtol=0.2)
    np.testing.assert_allclose(found.deviation[0], 1.0, rtol=0.02)
    assert float(found.offset[0]) == pytest.approx(1 / np.sqrt(settings.samples), rel=0.3)


def test_the_radius_is_that_of_the_rectifiers_moments():
    """The reference is a quadrature in float64, not the closed form."""
    z = np.linspace(-12, 12, 200_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    positive = np.maximum(z, 0)
    variance = (positive**2 * density).sum() - (positive * density).sum() ** 2
    assert signal.KEEPING * variance == pytest.approx(1, abs=1e-6)
    assert 2 * variance == pytest.approx(0.6817, abs=1e-4)


@pytest.mark.slow
def test_weights_by_hand_give_the_same_moments():
    """The reference is a chain in NumPy, float64, with its own weights."""
    random, settings = np.random.default_rng(0), signal.Settings(width=400)
    for radius, centered, forward, _ in signal.CASES.values():
        z, moments = random.normal(size=(64, 400)), []
        for _ in range(settings.depth):
            w = random.normal(size=(400, 400))
            w -= w.mean(1, keepdims=True) if centered else 0
            w *= (radius / (w**2).sum(1, keepdims=True)) ** 0.5
            moments.append((z**2).mean())
            z = np.maximum(z, 0) @ w.T
        own = signal.gain(np.array([moments]))
        assert own == pytest.approx(forward, rel=0.06)
        found = signal.rectified_chain(settings, radius, centered, jax.random.key(1))
        assert signal.gain(np.asarray(found.forward)[None]) == pytest.approx(own, rel=0.08)


@pytest.mark.slow
def test_the_sampled_error_is_proposition_1s_and_below_its_bound():
    key = jax.random.key(0)
    for common in (0.0, 0.5):
        weights = unit_rows(key, 16, 32, common)
        found = canonical_errors(key, weights, 2.0, 40_000)
        # Each of 240 entries has an error of about sigma^2 / sqrt(40,000).
        gram = 4.0 * np.asarray(weights, np.float64) @ np.asarray(weights, np.float64).T
        exact = np.linalg.norm(gram - np.diag(np.diag(gram)))
        assert float(found.exact) == pytest.approx(exact, rel=1e-4)
        assert abs(float(found.error) - exact) < 4 * np.sqrt(240 / 40_000)
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
    wanted = 2 * jacobian_factor(jax.nn.relu) ** 2 * both * r
    # A mean of values between 0 and 2.93 has a standard error of at most 0.0104.
    np.testing.assert_allclose(got, wanted, atol=0.045)


# Littwin and Wolf: modes.


@pytest.mark.slow
def test_a_rare_mode_is_merged_and_a_common_one_is_separated(standard_promotion):
    """vcl/fig2 with a quarter of its pairs, half of its steps and seeds, and its thresholds."""
    settings = fig2.Settings(groups=16, steps=2500)
    angles = jnp.deg2rad(jnp.array([15.0, 35.0, 55.0, 70.0]))
    keys = jax.random.split(jax.random.key(0), 4)
    over_seeds = jax.vmap(partial(fig2.train_unit, settings, 50, 1.0), (None, 0, 0))
    over_priors = jax.jit(jax.vmap(over_seeds, (0, None, None)))
    merged, separated = over_priors(jnp.array([0.1, 0.25]), keys, angles)[1][..., -1]
    assert merged.max() < 0.1
    assert separated.min() > 0.95


def test_the_mixture_has_the_kurtosis_of_eq_9():
    x = np.asarray(fig2.mixture_samples(jax.random.key(1), 0.1, 6.0, 200_000), np.float64)
    parts = x.reshape(10, -1, 2) - x.mean(0)
    kurtoses = (parts**4).mean(1) / (parts**2).mean(1) ** 2
    wanted = [float(mixture_kurtosis(0.1, 36.0, 1.0)), 3.0]
    error = kurtoses.std(0, ddof=1) / np.sqrt(10)
    assert (np.abs(kurtoses.mean(0) - wanted) < 4 * error).all()


def test_two_modes_are_found_and_one_is_left_alone():
    random = np.random.default_rng(3)
    one = random.normal(size=(300, 40))
    two = one + 4 * random.integers(0, 2, size=one.shape)
    assert multimodal(two).mean() > 0.9
    assert multimodal(one).mean() <= LEVEL
    assert multimodal(np.exp(one)).mean() <= LEVEL
    assert not multimodal(np.ones((300, 1)))
    assert 0.02 < critical_dip(300) < 0.05


# Kutsuna: twenty sigmoid layers.

DEPTH, WIDTH = 20, 128
X = jax.random.uniform(jax.random.key(7), (100, WIDTH))
KEYS = jax.random.split(jax.random.key(0), 3)
#: (constrained, pooled)
LCW, PLAIN, PLAIN_BY_UNIT = CASES = (True, True), (False, True), (False, False)


@pytest.fixture(scope="module")
def measured():
    """Returns the ratios of the gradients' variances per seed, and two layers, by case."""

    def run(case, key):
        chain = sigmoid_chain(key, X, DEPTH, constrained=case[0], pooled=case[1])
        return pooled_ratio(chain.gradients), jax.tree.map(lambda x: x[-2:], chain)

    over_seeds = jax.vmap(run, (None, 0))
    ratios, ends = jax.jit(jax.vmap(over_seeds, (0, None)))(jnp.array(CASES), KEYS)
    found = jax.tree.map(np.float64, (ratios, ends))
    return {case: jax.tree.map(lambda x, i=i: x[i], found) for i, case in enumerate(CASES)}


@pytest.mark.slow
def test_the_gradients_ratio_is_that_of_theory(measured):
    """The theory is the gain of wide layers to the power of 19. The gain of a layer of 128 units
    varies by sqrt(2 / 128), and that of 19 layers by half an e-fold; plain layers, whose units'
    means are random as well, vary by twice that. Four such deviations are allowed. With one
    variance per unit, the other reading of section 4.3, nothing vanishes."""
    for case, folds in ((LCW, 2.0), (PLAIN, 4.0)):
        predicted = gradient_gain(jax.nn.sigmoid, case[0]) ** (DEPTH - 1)
        assert np.abs(np.log(measured[case][0] / predicted)).max() < folds
    by_unit = measured[PLAIN_BY_UNIT][0]
    assert 2 < by_unit.min() < by_unit.max() < 12
    # The squares of vanished gradients underflow in float32.
    ratio = pooled_ratio(jnp.stack([1e-28 * X, 1e-22 * X]))
    np.testing.assert_allclose(ratio, 1e-12, rtol=1e-5)


def test_a_layer_is_what_numpy_says(measured):
    """Computes the last of twenty layers from the one before, and its gradients backwards."""
    kernel = jax.random.normal(jax.random.split(KEYS[0], 4)[1], (DEPTH - 1, WIDTH, WIDTH))[-1]
    kernel = np.asarray(kernel, np.float64)
    z, gradients = (x[0] for x in measured[LCW][1])
    a = 1 / (1 + np.exp(-z[0]))
    product = a @ (kernel - kernel.mean(0))
    np.testing.assert_allclose(z[1], product / product.std(), rtol=1e-4, atol=1e-4)
    back = gradients[1] @ ((kernel - kernel.mean(0)) / product.std()).T * a * (1 - a)
    np.testing.assert_allclose(gradients[0], back, rtol=1e-3, atol=1e-4 * back.std())
