"""The pre-activations of a model are those that its own layers compute."""

import jax
import numpy as np
import pytest
from flax import nnx

from jaxnorm import WeightNormalized, exclude, reparametrize
from jaxnorm.losses import collect_preactivations
from jaxnorm.nnx import functionalize


def conv(x, kernel):
    """3 x 3 with zero padding, in float64, one window at a time."""
    x, kernel = np.asarray(x, np.float64), np.asarray(kernel, np.float64)
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    rows, height, width, _ = x.shape
    out = np.zeros((rows, height, width, kernel.shape[-1]))
    for i in range(height):
        for j in range(width):
            out[:, i, j] = np.tensordot(padded[:, i : i + 3, j : j + 3], kernel, 3)
    return out


class Net(nnx.Module):
    """A convolution, batch normalization, a dense layer and a head without bias."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 3, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dense = nnx.Linear(3, 4, rngs=rngs)
        self.head = nnx.Linear(4, 2, use_bias=False, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x))).mean((1, 2))
        return self.head(nnx.relu(self.dense(x)))


@pytest.fixture
def model(key):
    functional = functionalize(Net(nnx.Rngs(key())))
    params = jax.tree.map(lambda leaf: leaf + 0.1, functional.params)
    return (lambda p, x: functional.apply(p, functional.state, x, train=True)[0]), params


@pytest.fixture
def images(key):
    return jax.random.normal(key(), (6, 5, 5, 2))


def test_they_are_the_layers_own_with_their_biases(model, images):
    apply, params = model
    output, layers = collect_preactivations(apply, params, images)
    assert list(layers) == ["conv/kernel", "dense/kernel", "head/kernel"]
    h = conv(images, params["conv"]["kernel"]) + np.asarray(params["conv"]["bias"])
    np.testing.assert_allclose(layers["conv/kernel"], h, atol=1e-5)
    u = (h - h.mean((0, 1, 2))) / np.sqrt(h.var((0, 1, 2)) + 1e-5)
    u = u * np.asarray(params["norm"]["scale"]) + np.asarray(params["norm"]["bias"])
    x = np.maximum(u, 0).mean((1, 2))
    h = x @ np.asarray(params["dense"]["kernel"]) + np.asarray(params["dense"]["bias"])
    np.testing.assert_allclose(layers["dense/kernel"], h, atol=1e-5)
    logits = np.maximum(h, 0) @ np.asarray(params["head"]["kernel"])
    np.testing.assert_allclose(layers["head/kernel"], logits, atol=1e-5)
    np.testing.assert_allclose(output, apply(params, images), atol=1e-6)


def test_reparametrized_kernels(model, images):
    apply, params = model
    hidden = exclude("^head/")
    raw = reparametrize(params, WeightNormalized, hidden)
    _, plain = collect_preactivations(apply, params, images, layout=hidden)
    _, layers = collect_preactivations(apply, raw, images, layout=hidden)
    assert list(layers) == ["conv/kernel", "dense/kernel"]
    for path, layer in layers.items():
        np.testing.assert_allclose(layer, plain[path], atol=1e-5)
