"""Strengths of gamma decay against explicit Hessians and closed forms, and the decay itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxnorm.batch_norm import gamma_decay, gamma_decay_strength
from tests.draws import draw
from tests.losses.nets import M, Net, assert_unbiased, normalize


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_strength_equals_that_of_the_explicit_hessian(kind: str) -> None:
    net, rho = Net(kind, 12), 1.5

    def strength(key: jax.Array) -> jax.Array:
        settings = {"probes": 2, "excess_kurtosis": rho}
        return gamma_decay_strength(
            net.loss_of_perturbation, net.normalized, M, key=key, **settings
        )

    keys = jax.random.split(jax.random.key(1), 1000)
    draws = jax.jit(lambda keys: jax.lax.map(strength, keys))(keys)
    assert_unbiased(draws, net.exact(rho))


def test_single_units_need_one_probe() -> None:
    """Nothing has to cancel, since a sign squared is 1: two layers of one unit each."""
    u = {"a": normalize(draw(5, 20, 1)), "b": normalize(draw(6, 20, 3, 1))}

    def loss(p: Any) -> jax.Array:
        a = jnp.square(u["a"] + p["a"]).mean()
        return a + jnp.square((u["b"] + p["b"]).sum(1)).mean() / 2

    rho = {"a": jnp.asarray([1.0]), "b": 0.0}
    sizes = {"a": 10.0, "b": 20.0}
    strength = jax.jit(
        lambda key: gamma_decay_strength(loss, u, sizes, key=key, excess_kurtosis=rho)
    )
    summed = np.asarray(u["b"], np.float64).sum((1, 2))
    expected = {
        "a": 0.5 * (3 / 40 * 2 + 2 / 10),
        "b": 0.5 * (2 / 80 * np.square(summed).mean() + 9 / 20),
    }
    for seed in range(3):
        computed = strength(jax.random.key(seed))
        for name, value in expected.items():
            np.testing.assert_allclose(computed[name], [value], rtol=1e-5)


def test_strengths_of_either_sign_unless_clipped() -> None:
    u = normalize(draw(10, 16, 2))
    loss = lambda p: (jnp.asarray([[1.0, -1.0]]) * jnp.square(u + p)).sum(1).mean()  # noqa: E731
    key = jax.random.key(0)
    strength = gamma_decay_strength(loss, u, M, key=key)
    assert strength[0] > 0 > strength[1]
    clipped = gamma_decay_strength(loss, u, M, key=key, nonnegative=True)
    assert clipped.tolist() == [strength[0], 0.0]


@pytest.mark.parametrize("argument", ["loss", "batch_size", "excess_kurtosis"])
def test_strength_is_a_constant_for_differentiation(argument: str) -> None:
    """Neither the Hessian nor a setting gets a gradient."""
    u, key = draw(10, 16, 2), jax.random.key(0)

    def total(p: jax.Array) -> jax.Array:
        curvature = p if argument == "loss" else jnp.float32(1)
        settings = {"batch_size": jnp.float32(M), "excess_kurtosis": jnp.float32(0)}
        settings |= {} if argument == "loss" else {argument: p}
        loss = lambda shift: (curvature * jnp.cosh(u + shift)).sum(1).mean()  # noqa: E731
        return gamma_decay_strength(loss, u, key=key, **settings).sum()

    value, doubled, slope = jax.jit(lambda p: (total(p), total(2 * p), jax.grad(total)(p)))(3.0)
    assert abs(value / doubled - 1) > 0.1
    assert slope == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_half_types_give_float32_strengths(dtype: str) -> None:
    u = normalize(draw(11, 64, 3)).astype(jnp.dtype(dtype))
    strength = gamma_decay_strength(
        lambda p: jnp.square(u + p).sum(1).mean(), u, M, key=jax.random.key(1)
    )
    assert strength.dtype == jnp.float32
    np.testing.assert_allclose(strength, 0.5 * (2 / (4 * M) + 1 / M) * 2, rtol=2e-2)


def test_devices_have_different_signs() -> None:
    """Four devices with equal rows are four times the probes, so a quarter of the variance."""
    u, head = normalize(draw(13, 6, 3)), draw(14, 3, 3)

    def strengths(keys: jax.Array, u: jax.Array, axis_name: str | None = None) -> jax.Array:
        def loss(p: jax.Array) -> jax.Array:
            return jnp.square((u + p) @ head).sum(1).mean()

        return jax.vmap(lambda key: gamma_decay_strength(loss, u, M, key=key, axis_name=axis_name))(
            keys
        )

    keys = jax.random.split(jax.random.key(2), 1000)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    mapped = jax.shard_map(
        lambda keys, u: strengths(keys, u, "data"),
        mesh=mesh,
        in_specs=(P(), P("data")),
        out_specs=P(),
    )
    alone, together = jax.jit(strengths)(keys, u), jax.jit(mapped)(keys, jnp.tile(u, (4, 1)))
    # The variance of a thousand draws is right to 5 percent, or less with heavy tails.
    np.testing.assert_allclose(together.var(0) / alone.var(0), 0.25, atol=0.06)


def test_gamma_decay_is_the_weighted_sum_of_squares() -> None:
    scales = {"a": draw(16, 3), "b": {"c": draw(17, 2), "d": draw(18, 4)}}
    strengths = {"a": draw(19, 3), "b": {"c": 0.5, "d": None}}
    wide = [np.asarray(x, np.float64) for x in (scales["a"], strengths["a"], scales["b"]["c"])]
    expected = (wide[1] * wide[0] ** 2).sum() + 0.5 * (wide[2] ** 2).sum()
    np.testing.assert_allclose(gamma_decay(scales, strengths), expected, rtol=1e-6)
    gradient = jax.grad(gamma_decay)(scales, strengths)
    np.testing.assert_allclose(gradient["a"], 2 * wide[1] * wide[0], rtol=1e-6)
    assert not np.asarray(gradient["b"]["d"]).any()
    squares = sum(float(np.square(np.asarray(x)).sum()) for x in jax.tree.leaves(scales))
    np.testing.assert_allclose(gamma_decay(scales, 2.0), 2 * squares, rtol=1e-5)
