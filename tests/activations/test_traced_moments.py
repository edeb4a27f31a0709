"""Moments of activations with learned parameters: values, derivatives, parameters per channel."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from jaxnorm.normprop import gaussian_moments, jacobian_factor, standardized

#: The errors that the docstrings promise: of moments, and of derivatives if a kink moves.
VALUES = {"rtol": 0.0, "atol": 2e-6}
MOVED = {"rtol": 0.0, "atol": 2e-3}


def prelu(kind: str, slope: Any) -> Callable[[Any], Any]:
    if kind == "closed form":
        return functools.partial(jax.nn.leaky_relu, negative_slope=slope)
    per_channel = jnp.expand_dims(slope, 0) if jnp.ndim(slope) else slope
    return lambda x: jnp.where(x > 0, x, per_channel * x)


def prelu_moments(a: Any) -> tuple[Any, Any]:
    """Closed form of the paper, in float64."""
    variance = ((1 + a**2) - (1 - a) ** 2 / np.pi) / 2
    return (1 - a) / np.sqrt(2 * np.pi), np.sqrt(variance)


@pytest.mark.parametrize("kind", ["closed form", "quadrature"])
@pytest.mark.parametrize("slope", [-0.5, 0.25])
def test_a_learned_slope_has_moments_and_gradients(kind: str, slope: float) -> None:
    moments = jax.jit(lambda a: gaussian_moments(prelu(kind, a)))
    values = moments(jnp.float32(slope))
    gradients = jax.jit(jax.jacobian(lambda a: gaussian_moments(prelu(kind, a))))(slope)
    step = 1e-6
    for index in range(2):
        difference = prelu_moments(slope + step)[index] - prelu_moments(slope - step)[index]
        assert values[index].dtype == jnp.float32
        np.testing.assert_allclose(values[index], prelu_moments(slope)[index], atol=1e-6)
        np.testing.assert_allclose(gradients[index], difference / (2 * step), atol=2e-6)


def test_a_slope_per_channel_has_moments_per_channel() -> None:
    slopes = jnp.asarray([0.0, 0.25, 0.5], jnp.bfloat16)
    exact = prelu_moments(np.asarray(slopes, np.float64))
    for kind in ("closed form", "quadrature"):
        np.testing.assert_allclose(gaussian_moments(prelu(kind, slopes)), exact, atol=1e-10)
    traced = jax.jit(lambda a: gaussian_moments(prelu("quadrature", a)))(slopes)
    np.testing.assert_allclose(traced, exact, atol=1e-6)
    exact_factor = np.sqrt((1 + np.asarray(slopes, np.float64) ** 2) / 2) / exact[1]
    factor = jax.jit(lambda a: jacobian_factor(prelu("quadrature", a)))(slopes)
    np.testing.assert_allclose(factor, exact_factor, atol=2e-6)
    factor = jacobian_factor(prelu("quadrature", slopes))
    np.testing.assert_allclose(factor, exact_factor, atol=1e-10)
    x = np.linspace(-2, 2, 6).reshape(2, 3)
    with jax.numpy_rank_promotion("raise"):
        y = standardized(prelu("quadrature", slopes.astype(jnp.float32)))(jnp.float32(x))
    negative = np.asarray(slopes, np.float64) * np.minimum(x, 0)
    np.testing.assert_allclose(y, (np.maximum(x, 0) + negative - exact[0]) / exact[1], atol=1e-6)


class Case(NamedTuple):
    """Activation of x and a parameter; in NumPy its function, slope in x and kinks."""

    activation: Callable[[Any, Any], Any]
    function: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    kinks: Callable[[float], list[float]]


CASES = {
    "relu(x - b)": Case(
        lambda x, b: jax.nn.relu(x - b),
        lambda x, b: max(x - b, 0.0),
        lambda x, b: float(x > b),
        lambda b: [b],
    ),
    "clip(a x, -1, 1)": Case(
        lambda x, a: jnp.clip(a * x, -1, 1),
        lambda x, a: min(max(a * x, -1.0), 1.0),
        lambda x, a: a * (abs(a * x) < 1),
        lambda a: [-1 / a, 1 / a],
    ),
    "elu(x - b)": Case(
        lambda x, b: jax.nn.elu(x - b),
        lambda x, b: x - b if x > b else np.expm1(x - b),
        lambda x, b: 1.0 if x > b else np.exp(x - b),
        lambda b: [b],
    ),
}
POINTS = [
    ("relu(x - b)", 0.3),
    ("relu(x - b)", -1.03125),
    ("clip(a x, -1, 1)", 0.7),
    ("clip(a x, -1, 1)", 40.0),
    ("elu(x - b)", 0.3137),
]


def exact_moments(case: Case, parameter: float) -> np.ndarray:
    """(mean, std, sqrt E f'^2) by SciPy's quadrature between the kinks."""

    def expectation(f: Callable[[Any], Any]) -> float:
        ends = [-12.0, *case.kinks(parameter), 12.0]
        return sum(
            scipy.integrate.quad(
                lambda x: f(x) * scipy.stats.norm.pdf(x), low, high, epsabs=1e-13, epsrel=1e-13
            )[0]
            for low, high in itertools.pairwise(ends)
        )

    mean = expectation(lambda x: case.function(x, parameter))
    square = expectation(lambda x: case.function(x, parameter) ** 2)
    squared_slope = expectation(lambda x: case.slope(x, parameter) ** 2)
    return np.array([mean, np.sqrt(square - mean**2), np.sqrt(squared_slope)])


@pytest.mark.parametrize(("name", "parameter"), POINTS)
def test_moments_of_moving_kinks_equal_those_of_scipy(name: str, parameter: float) -> None:
    case, step = CASES[name], 1e-5
    exact, above, below = (exact_moments(case, parameter + shift) for shift in (0, step, -step))

    def traced_moments(parameter: Any) -> jax.Array:
        f = lambda x: case.activation(x, parameter)  # noqa: E731
        mean, std = gaussian_moments(f)
        return jnp.stack([mean, std, jacobian_factor(f) * std])

    derivative = jax.jit(lambda p: jax.jvp(traced_moments, (p,), (jnp.ones_like(p),)))
    values, derivatives = derivative(jnp.float32(parameter))
    np.testing.assert_allclose(values[:2], exact[:2], **VALUES)
    jump = max(1.0, parameter**2)  # A bound on the jump of the squared slope.
    np.testing.assert_allclose(values[2] ** 2, exact[2] ** 2, rtol=0, atol=4e-3 * jump)
    np.testing.assert_allclose(derivatives[:2], ((above - below) / (2 * step))[:2], **MOVED)


def test_a_threshold_per_channel_has_moments_per_channel() -> None:
    """The last threshold lies beyond the nodes."""
    b = np.array([-0.2, 0.0, 0.3, 9.5])
    pdf, cdf = scipy.stats.norm.pdf, scipy.stats.norm.cdf

    def mean(b: jax.Array) -> jax.Array:
        return gaussian_moments(lambda x: jax.nn.relu(x - b[None]) + x)[0]

    values, derivatives = jax.jit(lambda b: jax.jvp(mean, (b,), (jnp.ones_like(b),)))(
        jnp.float32(b)
    )
    np.testing.assert_allclose(values, pdf(b) - b * cdf(-b), **VALUES)
    np.testing.assert_allclose(derivatives, -cdf(-b), **MOVED)
