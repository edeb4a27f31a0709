"""The strength from scales and biases is that from pre-activations, and that of the Hessian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm import affine_gamma_decay_strength
from tests.losses.test_gamma_decay_strength import SIGMAS, M, Net


def sample_loss(net):
    def loss(scale, bias, sample):
        u, label = sample
        shape = (1,) * (u.ndim - 1) + (-1,)
        features = jnp.tanh(scale.reshape(shape) * u + bias.reshape(shape)).reshape(-1)
        return -jax.nn.log_softmax(features @ net.head)[label]

    return loss


def strengths(net, key, **options):
    samples = (net.normalized, net.labels)
    return affine_gamma_decay_strength(
        sample_loss(net), net.scale, net.bias, samples, M, key=key, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("dense", marks=pytest.mark.slow), "conv"])
def test_it_is_the_strength_of_the_explicit_hessian(kind):
    """Of the pre-activations, sample by sample, in float64: within the draws' standard error."""
    net = Net(kind, 12)
    keys = jax.random.split(jax.random.key(1), 2000)
    draws = jax.jit(lambda keys: jax.lax.map(lambda key: strengths(net, key), keys))(keys)
    draws = np.asarray(draws, np.float64)
    error, exact = draws.std(0) / np.sqrt(len(draws)), net.exact()
    assert np.all(np.abs(draws.mean(0) - exact) < SIGMAS * error + 1e-6)
    assert np.all(error < 0.2 * np.abs(exact).max())


@pytest.mark.slow
def test_another_origin_and_unit_of_the_input_change_nothing():
    """gamma k + beta with k = s u + mu is gamma s u + (beta + gamma mu): zeta is s^2 that of u."""
    net = Net("dense", 12)
    # One unit of length for all: in a draw, units meet with the product of their lengths.
    mu, s = jnp.array([0.5, -1.0, 2.0]), jnp.full(3, 3.0)
    shifted = Net("dense", 12)
    shifted.normalized = s[None] * net.normalized + mu[None]
    shifted.scale, shifted.bias = net.scale / s, net.bias - net.scale * mu / s
    key = jax.random.key(2)
    got = strengths(shifted, key, means=mu, stddevs=3.0, excess_kurtosis=1.0)
    np.testing.assert_allclose(got, s**2 * strengths(net, key, excess_kurtosis=1.0), rtol=1e-3)


def test_devices_average():
    """Each has signs of its own: the mean of four is nearer to the exact strength than one is."""
    net = Net("dense", 16)
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))

    def local(u, labels):
        return affine_gamma_decay_strength(
            sample_loss(net),
            *(net.scale, net.bias, (u, labels), M),
            key=jax.random.key(0),
            axis_name="batch",
        )

    mapped = jax.shard_map(local, mesh=mesh, in_specs=P("batch"), out_specs=P())
    got = np.asarray(jax.jit(mapped)(net.normalized, net.labels))
    assert np.all(np.abs(got - net.exact()) < np.abs(net.exact()).max())
