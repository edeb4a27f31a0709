"""Constrained weights keep 0.68 of a rectified signal at c = 2, and all of it at 2.93."""

import jax
import numpy as np
import pytest

from experiments.papers.cwo.signal import CASES
from experiments.simulations.rectified_chain import KEEPING, gain, rectified_chain


def test_the_radius_is_that_of_the_rectifiers_moments():
    """By quadrature in float64, not by the closed form."""
    z = np.linspace(-12, 12, 200_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    positive = np.maximum(z, 0)
    variance = (positive**2 * density).sum() - (positive * density).sum() ** 2
    assert KEEPING * variance == pytest.approx(1, abs=1e-6)
    assert 2 * variance == pytest.approx(0.6817, abs=1e-4)


@pytest.mark.slow
def test_weights_by_hand_give_the_same_moments():
    """The chain in NumPy, float64, with weights of its own."""
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
