"""Strength from scales and biases against the explicit Hessian of the pre-activations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxnorm.batch_norm import affine_gamma_decay_strength
from tests.losses.nets import M, Net, assert_unbiased


def strengths(net: Net, key: Any, **options: Any) -> Any:
    samples = (net.normalized, net.labels)
    return affine_gamma_decay_strength(
        net.sample_loss, net.scale, net.bias, samples, M, key=key, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_strength_equals_that_of_the_explicit_hessian(kind: str) -> None:
    net = Net(kind, 12)
    keys = jax.random.split(jax.random.key(1), 2000)
    draws = jax.jit(lambda keys: jax.lax.map(lambda key: strengths(net, key), keys))(keys)
    assert_unbiased(draws, net.exact())


def test_one_probe_is_the_default() -> None:
    net, key = Net("dense", 4), jax.random.key(0)
    np.testing.assert_allclose(strengths(net, key), strengths(net, key, probes=1), rtol=1e-5)


def move(net: Net, mu: Any, s: Any) -> None:
    """Replaces u by k = s u + mu, and scale and bias so that gamma k + beta stays."""
    net.normalized = s[None] * net.normalized + mu[None]
    net.scale, net.bias = net.scale / s, net.bias - net.scale / s * mu


@pytest.mark.slow
def test_origin_and_unit_of_the_input_change_nothing() -> None:
    """gamma k + beta with k = s u + mu is gamma s u + (beta + gamma mu): zeta is s^2 that of u."""
    net, shifted = Net("dense", 12), Net("dense", 12)
    # One unit of length for all: in a draw, units meet with the product of their lengths.
    mu, s = jnp.array([0.5, -1.0, 2.0]), jnp.full(3, 3.0)
    move(shifted, mu, s)
    key = jax.random.key(2)
    computed = strengths(shifted, key, means=mu, stddevs=3.0, excess_kurtosis=1.0)
    expected = s**2 * strengths(net, key, excess_kurtosis=1.0)
    np.testing.assert_allclose(computed, expected, rtol=1e-3)


@pytest.mark.slow
def test_devices_average() -> None:
    """Each has its own signs: the mean of four is nearer to the exact strength than one is."""
    net, mu, s = Net("dense", 16), jnp.array([0.5, -1.0, 2.0]), jnp.full(3, 0.1)
    exact = np.square(s) * net.exact()
    move(net, mu, s)
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,))

    def local(u: Any, labels: Any) -> Any:
        samples, options = (u, labels), {"means": mu, "stddevs": 0.1, "axis_name": "batch"}
        return affine_gamma_decay_strength(
            net.sample_loss, net.scale, net.bias, samples, M, key=jax.random.key(0), **options
        )

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P("batch"), out_specs=P())
    computed = np.asarray(jax.jit(mapped)(net.normalized, net.labels))
    assert np.all(np.abs(computed - exact) < np.abs(exact).max())
