"""The networks: shapes, parameter counts in closed form, names, and biases."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments.config import Config
from experiments.models.patches import patches
from experiments.models.pooling import average_pool
from experiments.models.registry import NormalizedInput, build
from experiments.models.style import AlphaDropout
from jaxnorm import parameter_count
from jaxnorm.nnx import functionalize
from tests.draws import float32

#: The normalizers with a scale and a bias for each unit.

AFFINE = ("bn", "ln", "gn")


def network(name, norm, shape=(8, 8, 3), **sizes):
    """Makes a network's structure, whose parameters are shapes."""
    settings = Config(model=name, **{"channels": 64, **sizes})

    def make():
        return build(settings, shape, 10, nnx.Rngs(0), norm=norm)

    return functionalize(nnx.eval_shape(make))


def output_shape(functional, shape):
    apply, params, state = functional
    run = partial(apply, train=True)
    return jax.eval_shape(run, params, state, jax.ShapeDtypeStruct(shape, jnp.float32))[0].shape


@pytest.mark.parametrize("norm", [None, *AFFINE])
def test_mlp(norm):
    functional = network("mlp", norm, depth=2, width=16)
    per_unit = 1 if norm is None else 2
    assert parameter_count(functional.params) == 192 * 16 + 256 + per_unit * 32 + 170
    assert ("bias" in functional.params["blocks"][0]["linear"]) == (norm is None)
    assert output_shape(functional, (4, 8, 8, 3)) == (4, 10)


def test_pooling_is_the_mean_of_windows():
    x = float32(np.random.default_rng(0).normal(size=(2, 5, 6, 3)))
    expected = [
        [x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean((1, 2)) for j in range(3)]
        for i in range(2)
    ]
    np.testing.assert_allclose(average_pool(x), np.array(expected).transpose(2, 0, 1, 3), atol=1e-6)


def test_patches_are_squares_of_pixels_in_the_order_of_reading():
    x = np.random.default_rng(0).normal(size=(2, 35, 41, 3)).astype(np.float32)
    found = np.asarray(patches(jnp.asarray(x)))
    squares = [x[:, r : r + 4, c : c + 4] for r in range(0, 32, 4) for c in range(0, 40, 4)]
    np.testing.assert_array_equal(found, np.stack([each.reshape(2, -1) for each in squares], 1))


@pytest.mark.slow
def test_without_positions_a_transformer_does_not_see_where_a_patch_is():
    network = build(Config(model="patches", depth=1, width=8), (8, 8, 3), 10, nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
    turned = jnp.concatenate([x[:, 2:], x[:, :2]], 1)
    assert not np.allclose(network(x), network(turned), atol=1e-3)
    network.positions.embedding[...] = jnp.zeros((16, 8))
    np.testing.assert_allclose(network(x), network(turned), atol=1e-5)


def test_a_network_with_normalized_data_shows_what_it_sees():
    class Shows(nnx.Module):
        def __call__(self, x):
            return x.sum(-1)

        def activations(self, x):
            return [x]

    twice = nnx.Linear(6, 6, use_bias=False, rngs=nnx.Rngs(0))
    twice.kernel[...] = 2 * jnp.eye(6)
    network, x = NormalizedInput(twice, Shows()), jnp.arange(12.0).reshape(2, 3, 2)
    np.testing.assert_array_equal(network.activations(x)[0], 2 * x)
    np.testing.assert_array_equal(network(x), 2 * x.sum(-1))


def test_alpha_dropout_keeps_mean_and_variance(key):
    layer = AlphaDropout(0.3, rngs=nnx.Rngs(dropout=key()))
    x = jax.random.normal(key(), (200_000,))
    y = np.asarray(layer(x), np.float64)
    # Five standard errors of the mean and (kurtosis below 4) of the variance.
    assert y.mean() == pytest.approx(0, abs=5 / 200_000**0.5)
    assert y.var() == pytest.approx(1, abs=5 * (3 / 200_000) ** 0.5)
    counts = np.unique(y, return_counts=True)[1]
    assert counts.max() / len(y) == pytest.approx(0.3, abs=5 * (0.21 / 200_000) ** 0.5)
    layer.eval()
    np.testing.assert_array_equal(layer(x), x)
