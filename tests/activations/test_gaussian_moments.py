"""Gaussian moments against mpmath's quadrature between kinks, closed forms and asymptotics."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import scipy.stats
from jax.sharding import PartitionSpec as P

from jaxnorm.normprop import gaussian_moments, jacobian_factor, standardized

#: The errors that the docstrings promise: in general, and if a jump stays unseen.
EXACT, UNSEEN = 1e-10, 7e-6


class Case(NamedTuple):
    """Activation in JAX; its function, derivative and kinks in mpmath."""

    activation: Callable[[Any], Any]
    function: Callable[[Any], Any]
    derivative: Callable[[Any], Any]
    kinks: tuple[Any, ...] = (0,)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.e ** (-x))


def gelu(x: Any) -> Any:
    return x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)))


def leaky(activation: Callable[[Any], Any], a: Any) -> Case:
    return Case(activation, lambda x: x if x > 0 else x * a, lambda x: 1 if x > 0 else a)


def steps(x: jax.Array) -> jax.Array:
    """Jumps and kinks at places that are no ends of panels."""
    return jnp.where(x > 1 / 3, 2.0, jnp.where(x < -0.7, jnp.abs(x + 1.1), 0.0))


THIRD, JUMP, KINK = mp.mpf(1 / 3), mp.mpf(-0.7), mp.mpf(-1.1)
SCALE = mp.mpf("1.0507009873554804934193349852946")
ALPHA = mp.mpf("1.6732632423543772848170429916717")
LEAKY = functools.partial(jax.nn.leaky_relu, negative_slope=0.2)

CASES = {
    "relu": leaky(jax.nn.relu, 0),
    "relu by quadrature": leaky(lambda x: jnp.maximum(x, 0), 0),
    "leaky relu": leaky(jax.nn.leaky_relu, mp.mpf(1) / 100),
    "leaky relu 0.2": leaky(LEAKY, mp.mpf(1) / 5),
    "prelu": leaky(lambda x: jnp.where(x > 0, x, jnp.float32(0.25) * x), mp.mpf(1) / 4),
    "selu": Case(
        jax.nn.selu,
        lambda x: SCALE * (x if x > 0 else ALPHA * mp.expm1(x)),
        lambda x: SCALE * (1 if x > 0 else ALPHA * mp.e**x),
    ),
    "gelu": Case(jax.nn.gelu, gelu, lambda x: mp.diff(gelu, x)),
    "silu": Case(
        jax.nn.silu, lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x)))
    ),
    "tanh": Case(jnp.tanh, mp.tanh, lambda x: mp.sech(x) ** 2),
    "softplus": Case(jax.nn.softplus, lambda x: mp.log1p(mp.e**x), sigmoid),
    "hard tanh": Case(
        jax.nn.hard_tanh, lambda x: min(max(x, -1), 1), lambda x: int(abs(x) < 1), (-1, 1)
    ),
    "steps": Case(
        steps,
        lambda x: 2 if x > THIRD else (abs(x - KINK) if x < JUMP else 0),
        lambda x: mp.sign(x - KINK) * int(x < JUMP),
        (KINK, JUMP, THIRD),
    ),
    "large mean": Case(lambda x: 1000.0 + jnp.abs(x), lambda x: 1000 + abs(x), mp.sign),
}


def expectation(f: Callable[[Any], Any], kinks: tuple[Any, ...]) -> Any:
    edges = sorted({mp.mpf(k) for k in (*range(-20, 21, 2), *kinks)})
    return mp.quad(lambda x: f(x) * mp.npdf(x), edges)


@pytest.mark.kept("gelu", "selu")
@pytest.mark.parametrize("name", CASES)
def test_moments_and_factors_equal_those_of_mpmath(name: str) -> None:
    activation, function, derivative, kinks = CASES[name]
    with mp.workdps(25):
        mean = expectation(function, kinks)
        std = mp.sqrt(expectation(lambda x: (function(x) - mean) ** 2, kinks))
        factor = mp.sqrt(expectation(lambda x: derivative(x) ** 2, kinks)) / std
    values = (*gaussian_moments(activation), jacobian_factor(activation))
    assert all(type(value) is float for value in values)
    for value, exact in zip(values, (mean, std, factor), strict=True):
        assert abs(value - exact) < EXACT


#: Places before the first node of a panel, where a kink or jump stays unseen.
HIDDEN = (1 / 64 + 1e-5, 3 / 64 + 1.6e-5)


@pytest.mark.slow
@pytest.mark.parametrize("place", [0.3, -1.4, 1 / 64, 3 / 64 - 1e-4, *HIDDEN])
def test_kinks_and_jumps_have_the_documented_errors(place: float) -> None:
    """An unseen kink leaves the moments exact; an unseen jump, of f or f', costs at most 7e-6."""
    above, density = scipy.stats.norm.sf(place), scipy.stats.norm.pdf(place)
    atol = UNSEEN if place in HIDDEN else EXACT
    jump = gaussian_moments(lambda x: jnp.where(x > place, 1.0, 0.0))
    np.testing.assert_allclose(jump, (above, math.sqrt(above * (1 - above))), rtol=0, atol=atol)
    relu = lambda x: jnp.maximum(x - place, 0)  # noqa: E731
    mean = density - place * above
    std = math.sqrt((1 + place**2) * above - place * density - mean**2)
    np.testing.assert_allclose(gaussian_moments(relu), (mean, std), rtol=0, atol=EXACT)
    np.testing.assert_allclose(jacobian_factor(relu), math.sqrt(above) / std, rtol=atol)


@pytest.mark.kept("1000000")
@pytest.mark.parametrize("steepness", [1e3, 1e4, 1e6])
def test_steep_steps_at_zero_have_exact_moments(steepness: float) -> None:
    """E f'^2 and Var f of tanh(s x) equal two terms in 1 / s; the next terms are s^-4 of them."""
    s, root = steepness, math.sqrt(2 * math.pi)
    squared_slope = s / root * (4 / 3 - (math.pi**2 - 6) / (18 * s**2))
    std = math.sqrt(1 - (2 - math.pi**2 / (12 * s**2)) / (s * root))
    step = lambda x: jnp.tanh(s * x)  # noqa: E731
    mean, measured_std = gaussian_moments(step)
    assert abs(mean) < EXACT
    measured = (measured_std, jacobian_factor(step))
    np.testing.assert_allclose(measured, (std, math.sqrt(squared_slope) / std), rtol=EXACT)


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


REFUSED: dict[str, Callable[[Any], Any]] = {
    "exp(x^2/4)": lambda x: jnp.exp(x**2 / 4),
    "exp(x^2) below zero": lambda x: jnp.exp(jnp.minimum(x, 0) ** 2),
    "log": jnp.log,
    "exp(x^2/4) / (1 + x^2)": lambda x: jnp.exp(x**2 / 4) / (1 + x**2),
    "tan": jnp.tan,
    "root of a pole": lambda x: jnp.abs(x - 1.3) ** -0.5,
    "rounded to bfloat16": lambda x: jax.nn.relu(x.astype(jnp.bfloat16)),
}


@pytest.mark.kept("exp", "log")
@pytest.mark.parametrize("name", REFUSED)
def test_activations_without_exact_moments_raise(name: str) -> None:
    """Moments that are infinite, too close to infinite for float64, or of too many jumps."""
    with pytest.raises(ValueError, match=r"moments of this activation|activation or its square"):
        gaussian_moments(REFUSED[name])


@pytest.mark.parametrize("function", [standardized, jacobian_factor])
def test_a_constant_activation_raises(function: Any) -> None:
    with pytest.raises(ValueError, match=r"activation .* is constant"):
        function(lambda x: 0 * x + 2)
    assert gaussian_moments(lambda x: 0 * x + 2) == (2.0, 0.0)


def test_moments_are_equal_inside_every_transformation() -> None:
    """Under jit, grad, vmap, pmap, shard_map and a mesh of explicit axes, in float32."""
    activation = lambda x: jax.nn.silu(x - 0.1)  # noqa: E731
    expected = gaussian_moments(activation)
    collected: list[Any] = []

    def f(x: jax.Array) -> jax.Array:
        collected.append(gaussian_moments(activation))
        return x * jnp.float32(collected[-1][1])

    x = jnp.ones(8)
    jax.jit(f)(x)
    jax.grad(lambda x: f(x).sum())(x)
    jax.vmap(f)(x)
    jax.pmap(f)(x)
    for axis_type in (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit):
        with jax.set_mesh(jax.make_mesh((8,), ("data",), axis_types=(axis_type,))):
            jax.jit(f)(x)
            mapped = jax.shard_map(f, in_specs=P("data"), out_specs=P("data"))
            jax.jit(mapped)(jax.device_put(x, P("data")))
    assert len(collected) == 8
    assert set(collected) == {expected}
    assert not jax.config.read("jax_enable_x64")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_standardized_keeps_shape_and_type_and_normalizes(dtype: str) -> None:
    x = jnp.asarray(np.random.default_rng(1).normal(size=(200, 50)), jnp.dtype(dtype))
    y = standardized(jax.nn.elu)(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    # Ten thousand samples: a standard error of 0.01.
    assert abs(np.asarray(y, np.float64).mean()) < 0.04
    assert abs(np.asarray(y, np.float64).std() - 1) < 0.04


@pytest.mark.parametrize("name", ["relu", "silu", "tanh"])
def test_standardized_without_centering_has_mean_square_one(name: str) -> None:
    case, x = CASES[name], jnp.float32(1.5)
    with mp.workdps(25):
        square = expectation(lambda x: case.function(x) ** 2, case.kinks)
    ratio = standardized(case.activation, centered=False)(x) / case.activation(x)
    np.testing.assert_allclose(ratio, float(1 / mp.sqrt(square)), rtol=1e-6)
