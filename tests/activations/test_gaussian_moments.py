"""Gaussian moments against mpmath's quadrature in 30 digits, split at the kinks that we know."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm.activations import gaussian_moments, jacobian_factor, standardized

# The promise of the docstring.
EXACT = 1e-10


class Case(NamedTuple):
    """An activation of JAX, the same function in mpmath, and where its pieces meet."""

    activation: Callable[[Any], Any]
    oracle: Callable[[Any], Any]
    kinks: tuple[float, ...] = (0,)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.e ** (-x))


def steps(x: jax.Array) -> jax.Array:
    """Jumps and kinks at places that no halving of a panel hits."""
    return jnp.where(x > 1 / 3, 2.0, jnp.where(x < -0.7, jnp.abs(x + 1.1), 0.0))


def steps_oracle(x: Any) -> Any:
    return 2 if x > mp.mpf(1) / 3 else (abs(x + mp.mpf("1.1")) if x < mp.mpf("-0.7") else 0)


SELU_SCALE = mp.mpf("1.0507009873554804934193349852946")
SELU_ALPHA = mp.mpf("1.6732632423543772848170429916717")

CASES = {
    "relu": Case(jax.nn.relu, lambda x: max(x, 0)),
    "relu_by_quadrature": Case(lambda x: jnp.maximum(x, 0), lambda x: max(x, 0)),
    "leaky_relu": Case(jax.nn.leaky_relu, lambda x: x if x > 0 else x / 100),
    "leaky_relu_0.2": Case(
        functools.partial(jax.nn.leaky_relu, negative_slope=0.2), lambda x: x if x > 0 else x / 5
    ),
    "prelu": Case(
        lambda x: jnp.where(x > 0, x, jnp.float32(0.25) * x), lambda x: x if x > 0 else x / 4
    ),
    "elu": Case(jax.nn.elu, lambda x: x if x > 0 else mp.expm1(x)),
    "selu": Case(jax.nn.selu, lambda x: SELU_SCALE * (x if x > 0 else SELU_ALPHA * mp.expm1(x))),
    "gelu": Case(functools.partial(jax.nn.gelu, approximate=False), lambda x: x * mp.ncdf(x)),
    "gelu_tanh": Case(
        jax.nn.gelu,
        lambda x: x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))),
    ),
    "silu": Case(jax.nn.silu, lambda x: x * sigmoid(x)),
    "tanh": Case(jnp.tanh, mp.tanh),
    "softplus": Case(jax.nn.softplus, lambda x: mp.log1p(mp.e**x)),
    "hard_tanh": Case(jax.nn.hard_tanh, lambda x: min(max(x, -1), 1), (-1, 1)),
    "steps": Case(steps, steps_oracle, (-1.1, -0.7, mp.mpf(1) / 3)),
    "large_mean": Case(lambda x: 1000.0 + jnp.abs(x), lambda x: 1000 + abs(x)),
}


def expectation(f: Callable[[Any], Any], kinks: tuple[Any, ...]) -> Any:
    edges = sorted({mp.mpf(k) for k in (*range(-20, 21, 2), *kinks)})
    return mp.quad(lambda x: f(x) * mp.npdf(x), edges)


@functools.cache
def wanted(name: str) -> tuple[Any, Any]:
    case = CASES[name]
    with mp.workdps(25):
        mean = expectation(case.oracle, case.kinks)
        variance = expectation(lambda x: (case.oracle(x) - mean) ** 2, case.kinks)
        return mean, mp.sqrt(variance)


@pytest.mark.parametrize("name", CASES)
def test_moments_are_those_of_mpmath(name: str) -> None:
    got = gaussian_moments(CASES[name].activation)
    assert all(type(value) is float for value in got)
    for value, exact in zip(got, wanted(name), strict=True):
        assert abs(value - exact) < EXACT


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: 1 if x > 0 else 0,
    "leaky_relu_0.2": lambda x: 1 if x > 0 else mp.mpf(1) / 5,
    "tanh": lambda x: mp.sech(x) ** 2,
    "softplus": sigmoid,
    "hard_tanh": lambda x: 1 if abs(x) < 1 else 0,
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_jacobian_factor_is_that_of_mpmath(name: str) -> None:
    derivative = DERIVATIVES[name]
    with mp.workdps(25):
        squared = expectation(lambda x: derivative(x) ** 2, CASES[name].kinks)
    exact = mp.sqrt(squared) / wanted(name)[1]
    assert abs(jacobian_factor(CASES[name].activation) - exact) < EXACT


def moved_silu(x: jax.Array) -> jax.Array:
    return jax.nn.silu(x - 0.1)


def test_the_same_numbers_inside_every_transformation() -> None:
    """Under jit, grad, vmap, pmap, shard_map and a mesh of explicit axes, in float32."""
    outside = gaussian_moments(moved_silu)
    seen: list[Any] = []

    def f(x: jax.Array) -> jax.Array:
        seen.append(gaussian_moments(moved_silu))
        return x * jnp.float32(seen[-1][1])

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
    assert len(seen) == 8
    assert set(seen) == {outside}
    assert not jax.config.read("jax_enable_x64")


def learned(kind: str, slope: Any) -> Callable[[Any], Any]:
    if kind == "closed form":
        return functools.partial(jax.nn.leaky_relu, negative_slope=slope)
    per_channel = jnp.expand_dims(slope, 0) if jnp.ndim(slope) else slope
    return lambda x: jnp.where(x > 0, x, per_channel * x)


def prelu_moments(a: Any) -> tuple[Any, Any]:
    """The paper's closed form, in float64."""
    variance = ((1 + a**2) - (1 - a) ** 2 / np.pi) / 2
    return (1 - a) / np.sqrt(2 * np.pi), np.sqrt(variance)


@pytest.mark.parametrize("kind", ["closed form", "quadrature"])
@pytest.mark.parametrize("slope", [-0.5, 0.25])
def test_a_learned_slope_has_moments_and_gradients(kind: str, slope: float) -> None:
    moments = jax.jit(lambda a: gaussian_moments(learned(kind, a)))
    got = moments(jnp.float32(slope))
    gradients = jax.jit(jax.jacobian(lambda a: gaussian_moments(learned(kind, a))))(slope)
    step = 1e-6
    for index in range(2):
        difference = prelu_moments(slope + step)[index] - prelu_moments(slope - step)[index]
        assert got[index].dtype == jnp.float32
        np.testing.assert_allclose(got[index], prelu_moments(slope)[index], atol=1e-6)
        np.testing.assert_allclose(gradients[index], difference / (2 * step), atol=2e-6)


def test_a_slope_per_channel_has_moments_per_channel() -> None:
    slopes = jnp.asarray([0.0, 0.25, 0.5], jnp.bfloat16)
    exact = prelu_moments(np.asarray(slopes, np.float64))
    known = gaussian_moments(learned("quadrature", slopes))
    np.testing.assert_allclose(known, exact, atol=EXACT)
    np.testing.assert_allclose(gaussian_moments(learned("closed form", slopes)), exact, atol=EXACT)
    traced = jax.jit(lambda a: gaussian_moments(learned("quadrature", a)))(slopes)
    np.testing.assert_allclose(traced, exact, atol=1e-6)
    factor = jax.jit(lambda a: jacobian_factor(learned("quadrature", a)))(slopes)
    wanted_factor = np.sqrt((1 + np.asarray(slopes, np.float64) ** 2) / 2) / exact[1]
    np.testing.assert_allclose(factor, wanted_factor, atol=2e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_standardized_keeps_shape_and_type_and_normalizes(dtype: str) -> None:
    x = jnp.asarray(np.random.default_rng(1).normal(size=(200, 50)), jnp.dtype(dtype))
    got = standardized(jax.nn.elu)(x)
    assert (got.shape, got.dtype) == (x.shape, x.dtype)
    # Ten thousand samples: a standard error of 0.01.
    assert abs(np.asarray(got, np.float64).mean()) < 0.04
    assert abs(np.asarray(got, np.float64).std() - 1) < 0.04


@pytest.mark.parametrize("function", [standardized, jacobian_factor])
def test_a_constant_activation_is_refused(function: Any) -> None:
    with pytest.raises(ValueError, match=r"constant under N\(0, 1\).*nothing can be divided"):
        function(lambda x: 0 * x + 2)


@pytest.mark.parametrize("name", ["relu", "silu", "tanh"])
def test_without_centering_the_mean_square_is_one(name: str) -> None:
    case, x = CASES[name], jnp.float32(1.5)
    with mp.workdps(25):
        square = expectation(lambda x: case.oracle(x) ** 2, case.kinks)
    ratio = standardized(case.activation, centered=False)(x) / case.activation(x)
    np.testing.assert_allclose(ratio, float(1 / mp.sqrt(square)), rtol=1e-6)
