"""Moments of activations whose kinks move with a parameter: values, and what moving them adds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from jaxnorm.activations import gaussian_moments, jacobian_factor

# The promises of the docstrings: of the moments, and of their derivatives where a kink moves inside
# a panel.
VALUES = {"rtol": 0.0, "atol": 2e-6}
MOVED = {"rtol": 0.0, "atol": 2e-3}

phi, cdf = scipy.stats.norm.pdf, scipy.stats.norm.cdf
SELU = 1.0507009873554805, 1.6732632423543772


def by_pieces(pieces: list[tuple[Any, Any]], ends: list[float]) -> np.ndarray:
    """(mean, std, sqrt E f'^2) from SciPy's quadrature of each smooth piece (f, f')."""
    totals = np.zeros(3)
    for (f, slope), start, end in zip(pieces, [-12.0, *ends], [*ends, 12.0], strict=True):
        integrands = (f, lambda x, f=f: f(x) ** 2, lambda x, s=slope: s(x) ** 2)
        for index, integrand in enumerate(integrands):
            value = scipy.integrate.quad(
                lambda x, g=integrand: g(x) * phi(x), start, end, epsabs=1e-13, epsrel=1e-13
            )[0]
            totals[index] += value
    mean, square, squared_slope = totals
    return np.array([mean, np.sqrt(square - mean**2), np.sqrt(squared_slope)])


ZERO, ONE = (lambda x: 0.0 * x), (lambda x: 0.0 * x + 1)
SELU_BELOW = (
    lambda x: SELU[0] * SELU[1] * (np.exp(x) - 1),
    lambda x: SELU[0] * SELU[1] * np.exp(x),
)


SELU_ABOVE = (lambda x: SELU[0] * x, lambda x: SELU[0] * ONE(x))


def moved(piece: tuple[Any, Any], b: float) -> tuple[Any, Any]:
    return lambda x: piece[0](x - b), lambda x: piece[1](x - b)


def scaled(piece: tuple[Any, Any], a: float) -> tuple[Any, Any]:
    return lambda x: piece[0](a * x), lambda x: a * piece[1](a * x)


LINE, BOTTOM = (lambda x: x, ONE), (lambda x: -ONE(x), ZERO)
#: The activation of JAX with its parameter, the same in pieces, and points of the parameter.
CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[float], Any], tuple[float, ...]]] = {
    "relu(x - b)": (
        lambda x, b: jax.nn.relu(x - b),
        lambda b: by_pieces([(ZERO, ZERO), moved(LINE, b)], [b]),
        (0.3, -1.03125),
    ),
    "clip(a x, -1, 1)": (
        lambda x, a: jnp.clip(a * x, -1, 1),
        lambda a: by_pieces([BOTTOM, scaled(LINE, a), (ONE, ZERO)], [-1 / a, 1 / a]),
        (0.7, 40.0),
    ),
    "selu(x - b)": (
        lambda x, b: jax.nn.selu(x - b),
        lambda b: by_pieces([moved(SELU_BELOW, b), moved(SELU_ABOVE, b)], [b]),
        (0.3137,),
    ),
}
POINTS = [(name, at) for name, (_, _, points) in CASES.items() for at in points]


def measured(activation: Callable[[Any, Any], Any]) -> Callable[[Any], jax.Array]:
    """(mean, std, sqrt E f'^2) of the activation with a traced parameter."""

    def of(parameter: Any) -> jax.Array:
        f = lambda x: activation(x, parameter)  # noqa: E731
        mean, std = gaussian_moments(f)
        return jnp.stack([mean, std, jacobian_factor(f) * std])

    return of


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """Values and derivatives of each case by one program."""

    def both(name: str) -> Any:
        of = measured(CASES[name][0])
        return jax.jit(lambda p: jax.jvp(of, (p,), (jnp.ones_like(p),)))

    return {name: both(name) for name in CASES}


@pytest.mark.parametrize(("name", "at"), POINTS)
def test_values_and_slopes_are_those_of_the_pieces(
    compiled: dict[str, Any], name: str, at: float
) -> None:
    exact, step = CASES[name][1], 1e-5
    value, slope = compiled[name](jnp.float32(at))
    np.testing.assert_allclose(value[:2], exact(at)[:2], **VALUES)
    jump = max(1.0, at**2)  # of the squared slope, to 1 or to its scale's square
    np.testing.assert_allclose(value[2] ** 2, exact(at)[2] ** 2, rtol=0, atol=4e-3 * jump)
    wanted = (exact(at + step) - exact(at - step)) / (2 * step)
    np.testing.assert_allclose(slope[:2], wanted[:2], **MOVED)


def test_a_threshold_for_each_channel() -> None:
    """Each channel has a kink of its own, one of them where there are no normal numbers."""
    b = np.array([-0.2, 0.0, 0.3, 9.5])

    def mean(b: jax.Array) -> jax.Array:
        return gaussian_moments(lambda x: jax.nn.relu(x - b[None]) + x)[0]

    got, slopes = jax.jit(lambda b: jax.jvp(mean, (b,), (jnp.ones_like(b),)))(jnp.float32(b))
    np.testing.assert_allclose(got, phi(b) - b * cdf(-b), **VALUES)
    np.testing.assert_allclose(slopes, -cdf(-b), **MOVED)
