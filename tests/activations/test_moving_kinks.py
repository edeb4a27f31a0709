"""Moments of activations whose kinks move with a parameter: values, and what moving them adds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from jax.sharding import PartitionSpec as P

from jaxnorm.activations import gaussian_moments, jacobian_factor
from jaxnorm.theory import lcw

# The promise of the docstring; the slopes divide by differences of numbers of order one.
VALUES = {"rtol": 0.0, "atol": 2e-6}
SLOPES = {"rtol": 0.0, "atol": 2e-5}

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


LINE, TOP, BOTTOM = (lambda x: x, ONE), (lambda x: 6 * ONE(x), ZERO), (lambda x: -ONE(x), ZERO)
#: The activation of JAX with its parameter, the same in pieces, and points of the parameter.
CASES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[float], Any], tuple[float, ...]]] = {
    "relu(x - b)": (
        lambda x, b: jax.nn.relu(x - b),
        lambda b: by_pieces([(ZERO, ZERO), moved(LINE, b)], [b]),
        (0.0, 0.3, 1.0, -1.03125),
    ),
    "clip(a x, -1, 1)": (
        lambda x, a: jnp.clip(a * x, -1, 1),
        lambda a: by_pieces([BOTTOM, scaled(LINE, a), (ONE, ZERO)], [-1 / a, 1 / a]),
        (1.0, 0.7, 40.0),
    ),
    "relu6(a x)": (
        lambda x, a: jax.nn.relu6(a * x),
        lambda a: by_pieces([(ZERO, ZERO), scaled(LINE, a), TOP], [0.0, 6 / a]),
        (2.9, 6.0),
    ),
    "selu(x - b)": (
        lambda x, b: jax.nn.selu(x - b),
        lambda b: by_pieces([moved(SELU_BELOW, b), moved(SELU_ABOVE, b)], [b]),
        (0.0, 0.3137, -0.8),
    ),
    "|x - b|": (
        lambda x, b: jnp.abs(x - b),
        lambda b: by_pieces([(lambda x: b - x, lambda x: -ONE(x)), moved(LINE, b)], [b]),
        (0.5,),
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
    np.testing.assert_allclose(value, exact(at), **VALUES)
    wanted = (exact(at + step) - exact(at - step)) / (2 * step)
    np.testing.assert_allclose(slope, wanted, rtol=2e-5, atol=SLOPES["atol"])


@pytest.mark.parametrize(
    ("activation", "at", "wanted"),
    [(lambda x: jnp.clip(x, -1, 1), 1.0, -2 * phi(1.0)), (jax.nn.relu6, 2.9, None)],
)
def test_the_gain_of_a_gradient_moves_with_the_scale(
    activation: Any, at: float, wanted: float | None
) -> None:
    """d/ds E f'(s Z)^2: of clip, P(|Z| < 1/s), at 1; of relu6, P(0 < Z < 6/s)."""
    wanted = -6 / at**2 * phi(6 / at) if wanted is None else wanted
    got = jax.jit(jax.grad(lambda s: lcw.variance_gain(activation, s)[1]))(at)
    np.testing.assert_allclose(got, wanted, **SLOPES)


def test_a_threshold_for_each_channel() -> None:
    """Each channel has a kink of its own, one of them where there are no normal numbers."""
    b = np.array([-0.2, 0.0, 0.3, 9.5])

    def of(b: jax.Array) -> tuple[jax.Array, jax.Array]:
        f = lambda x: jax.nn.relu(x - b[None]) + x  # noqa: E731
        mean, std = gaussian_moments(f)
        return mean, jnp.square(jacobian_factor(f) * std)

    got, slopes = jax.jit(lambda b: jax.jvp(of, (b,), (jnp.ones_like(b),)))(jnp.float32(b))
    np.testing.assert_allclose(got[0], phi(b) - b * cdf(-b), **VALUES)
    np.testing.assert_allclose(slopes[0], -cdf(-b), **SLOPES)
    np.testing.assert_allclose(got[1], cdf(b) + 4 * cdf(-b), **VALUES)
    np.testing.assert_allclose(slopes[1], -3 * phi(b), **SLOPES)


def test_second_derivatives_of_straight_pieces() -> None:
    """d2/db2 P(Z > b) = b phi(b)."""
    of = lambda b: jnp.square(measured(lambda x, b: jax.nn.relu(x - b))(b)[2])  # noqa: E731
    second = jax.jit(jax.grad(jax.grad(of)))(0.7)
    np.testing.assert_allclose(second, 0.7 * phi(0.7), rtol=1e-3)


@pytest.mark.slow
def test_a_parameter_that_differs_between_devices() -> None:
    thresholds = jnp.linspace(-1.0, 1.0, 8)
    of = jax.value_and_grad(lambda b: jnp.square(measured(CASES["relu(x - b)"][0])(b)[2]).sum())
    with jax.set_mesh(jax.make_mesh((8,), ("data",))):
        mapped = jax.jit(
            jax.shard_map(lambda b: of(b[0])[1][None], in_specs=P("data"), out_specs=P("data"))
        )
        got = mapped(jax.device_put(thresholds, P("data")))
    np.testing.assert_allclose(got, -phi(np.asarray(thresholds)), **SLOPES)
    np.testing.assert_allclose(jax.jit(jax.vmap(of))(thresholds)[1], got, **SLOPES)
