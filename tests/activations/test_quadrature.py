"""Where a quadrature is hard: kinks beside its edges, heavy tails, moments that are infinite."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxnorm.activations import gaussian_moments, jacobian_factor

# The promise of the docstring.
EXACT = 1e-10

KINKS = [near + step for near in (0.0, 1 / 14) for step in (0, -1e-4, 1e-11)]


@pytest.mark.kept("0.07")
@pytest.mark.parametrize("kink", KINKS)
def test_no_place_of_a_kink_is_overlooked(kink: float) -> None:
    """Near the ends of panels, first of all: 1e-4 past one, no inner node is before the kink."""
    with mp.workdps(25):
        b = mp.mpf(kink)
        above = mp.ncdf(-b)
        mean = mp.npdf(b) - b * above
        std = mp.sqrt((1 + b**2) * above - b * mp.npdf(b) - mean**2)
        factor = mp.sqrt(above) / std
    relu = lambda x: jnp.maximum(x - kink, 0)  # noqa: E731
    got = (*gaussian_moments(relu), jacobian_factor(relu))
    np.testing.assert_allclose(got, np.asarray([mean, std, factor], np.float64), rtol=EXACT)


@pytest.mark.kept("1000000")
@pytest.mark.parametrize("steepness", [1e3, 1e4, 1e6])
def test_a_steep_step_is_seen(steepness: float) -> None:
    """Against two terms in 1 / s of E f'^2 and Var f, f = tanh(s x); the next are s^-4 of them.

    The nodes see the two sides of the step only: its slope is a spike between them, and so is 1 -
    f^2.
    """
    s, root = steepness, math.sqrt(2 * math.pi)
    slope = s / root * (4 / 3 - (math.pi**2 - 6) / (18 * s**2))
    std = math.sqrt(1 - (2 - math.pi**2 / (12 * s**2)) / (s * root))
    step = lambda x: jnp.tanh(s * x)  # noqa: E731
    mean, got = gaussian_moments(step)
    assert abs(mean) < EXACT
    factor = math.sqrt(slope) / std
    np.testing.assert_allclose((got, jacobian_factor(step)), (std, factor), rtol=EXACT)


@pytest.mark.parametrize("rate", [0.2, 0.24])
def test_activations_that_grow_nearly_as_the_density_falls(rate: float) -> None:
    """E exp(r x^2) = 1 / sqrt(1 - 2r); at r = 0.24 the tails beyond 16 hold 1e-3 of its square."""
    growing = lambda x: jnp.exp(rate * jnp.square(x))  # noqa: E731
    first, second = (1 - 2 * rate) ** -0.5, (1 - 4 * rate) ** -0.5
    std = math.sqrt(second - first**2)
    mean_squared_slope = 4 * rate**2 * second / (1 - 4 * rate)
    np.testing.assert_allclose(gaussian_moments(growing), (first, std), rtol=EXACT)
    factor = math.sqrt(mean_squared_slope) / std
    np.testing.assert_allclose(jacobian_factor(growing), factor, rtol=EXACT)


@pytest.mark.slow
def test_steps_of_rounded_values_are_too_many() -> None:
    """relu in bfloat16 is a staircase."""
    with pytest.raises(ValueError, match="bends and jumps at a few places only"):
        gaussian_moments(lambda x: jax.nn.relu(x.astype(jnp.bfloat16)))


INFINITE: dict[str, Callable[[Any], Any]] = {
    "exp(x^2/4)": lambda x: jnp.exp(x**2 / 4),
    "exp(x^2) below zero": lambda x: jnp.exp(jnp.minimum(x, 0) ** 2),
    "log": jnp.log,
    "exp(x^2/4) / (1 + x^2)": lambda x: jnp.exp(x**2 / 4) / (1 + x**2),
    "tan": jnp.tan,
    "root of a pole": lambda x: jnp.abs(x - 1.3) ** -0.5,
}


@pytest.mark.parametrize("name", INFINITE)
def test_moments_that_are_infinite_or_beyond_float64_are_refused(name: str) -> None:
    """All but the log and the one that falls as x^-4, which no panels reach, have infinite ones."""
    message = r"(do not converge|not finite at \S+ in float64); wanted a function whose square has"
    with pytest.raises(ValueError, match=message):
        gaussian_moments(INFINITE[name])
