"""The sizes of layers after standardized activations and rectifiers, against chains in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers.cwo.signal import CASES, KEEPING, gain, rectified_chain
from experiments.papers.normprop.depth import propagated_chain

#: E relu and the deviation of relu under a standard normal.
MEAN, DEVIATION = 1 / np.sqrt(2 * np.pi), np.sqrt(0.5 - 1 / (2 * np.pi))
DEPTH, WIDTH, SAMPLES = 6, 128, 2000


@pytest.mark.parametrize("centered", [False, True])
def test_the_chain_is_that_of_numpy_with_weights_of_its_own(centered):
    random, sizes = np.random.default_rng(0), []
    a = random.normal(size=(SAMPLES, WIDTH))
    for _ in range(DEPTH):
        w = random.normal(size=(WIDTH, WIDTH))
        w -= w.mean(1, keepdims=True) if centered else 0
        z = a @ (w / np.linalg.norm(w, axis=1, keepdims=True)).T
        sizes.append((np.sqrt((z.mean(0) ** 2).mean()), np.sqrt(z.var(0).mean())))
        a = (np.maximum(z, 0) - MEAN) / DEVIATION
    key = jax.random.key(1)
    found = propagated_chain(key, jax.nn.relu, DEPTH, WIDTH, SAMPLES, centered=centered)
    # Other weights: sizes of 128 units, which grow or fall together.
    np.testing.assert_allclose(np.hypot(*found), np.hypot(*np.transpose(sizes)), rtol=0.2)
    np.testing.assert_allclose(found.deviation[0], 1.0, rtol=0.02)
    assert float(found.offset[0]) == pytest.approx(1 / np.sqrt(SAMPLES), rel=0.3)


def test_what_is_linear_propagates_exactly():
    """The identity on orthogonal rows keeps the mean square."""
    found = propagated_chain(jax.random.key(0), lambda x: x, 3, 64, 4000, centered=False)
    np.testing.assert_allclose(found.deviation, jnp.ones(3), rtol=0.1)


def test_the_radius_is_that_of_the_rectifiers_moments():
    """The reference is a quadrature in float64, not the closed form."""
    z = np.linspace(-12, 12, 200_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    positive = np.maximum(z, 0)
    variance = (positive**2 * density).sum() - (positive * density).sum() ** 2
    assert KEEPING * variance == pytest.approx(1, abs=1e-6)
    assert 2 * variance == pytest.approx(0.6817, abs=1e-4)


@pytest.mark.slow
def test_weights_by_hand_give_the_same_moments():
    """The reference is a chain in NumPy, float64, with its own weights."""
    random = np.random.default_rng(0)
    for radius, centered, forward, _ in CASES.values():
        z, moments = random.normal(size=(64, 400)), []
        for _ in range(9):
            w = random.normal(size=(400, 400))
            w -= w.mean(1, keepdims=True) if centered else 0
            w *= (radius / (w**2).sum(1, keepdims=True)) ** 0.5
            moments.append((z**2).mean())
            z = np.maximum(z, 0) @ w.T
        own = gain(np.array([moments]))[0]
        assert own == pytest.approx(forward, rel=0.06)
        found = rectified_chain(jax.random.key(1), 9, 400, 64, radius, centered=centered)
        assert float(gain(found.forward)) == pytest.approx(own, rel=0.08)
