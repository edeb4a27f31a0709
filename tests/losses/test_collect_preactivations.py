"""The pre-activations of a model are those that its own layers compute, in any library."""

import flax.linen as nn
import jax
import jax.numpy as jnp
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


def nnx_case(key):
    functional = functionalize(Net(nnx.Rngs(key)))

    def apply(params, x):
        return functional.apply(params, functional.state, x, train=True)[0]

    return apply, functional.params, ("conv", "dense", "head")


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(3, (3, 3), name="conv")(x)
        mean, variance = x.mean((0, 1, 2), keepdims=True), x.var((0, 1, 2), keepdims=True)
        x = nn.relu((x - mean) / jnp.sqrt(variance + 1e-5)).mean((1, 2))
        x = nn.relu(nn.Dense(4, name="dense")(x))
        return nn.Dense(2, use_bias=False, name="head")(x)


def linen_case(key):
    model = LinenNet()
    params = model.init(key, jnp.ones((2, 5, 5, 2)))["params"]
    return (lambda params, x: model.apply({"params": params}, x)), params, ("conv", "dense", "head")


CASES = pytest.mark.parametrize("case", [nnx_case, linen_case])


@pytest.fixture
def images(key):
    return jax.random.normal(key(), (6, 5, 5, 2))


@CASES
def test_they_are_the_layers_own_with_their_biases(case, key, images):
    apply, params, names = case(key())
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    output, layers = collect_preactivations(apply, params, images)
    assert [path.split("/")[0] for path in layers] == list(names)
    h = conv(images, params["conv"]["kernel"]) + np.asarray(params["conv"]["bias"])
    np.testing.assert_allclose(layers["conv/kernel"], h, atol=1e-5)
    u = (h - h.mean((0, 1, 2))) / np.sqrt(h.var((0, 1, 2)) + 1e-5)
    if "norm" in params:
        u = u * np.asarray(params["norm"]["scale"]) + np.asarray(params["norm"]["bias"])
    x = np.maximum(u, 0).mean((1, 2))
    h = x @ np.asarray(params["dense"]["kernel"]) + np.asarray(params["dense"]["bias"])
    np.testing.assert_allclose(layers["dense/kernel"], h, atol=1e-5)
    logits = np.maximum(h, 0) @ np.asarray(params["head"]["kernel"])
    np.testing.assert_allclose(layers["head/kernel"], logits, atol=1e-5)
    np.testing.assert_allclose(output, apply(params, images), atol=1e-6)


@CASES
def test_reparametrized_kernels(case, key, images):
    apply, params, _ = case(key())
    hidden = exclude("^head/")
    raw = reparametrize(params, WeightNormalized, hidden)
    _, plain = collect_preactivations(apply, params, images, layout=hidden)
    _, layers = collect_preactivations(apply, raw, images, layout=hidden)
    assert list(layers) == ["conv/kernel", "dense/kernel"]
    for path, layer in layers.items():
        np.testing.assert_allclose(layer, plain[path], atol=1e-5)


@CASES
def test_gradients_flow_through_what_is_collected(case, key, images):
    """By finite differences of the model itself, in the kernels before the layer."""
    apply, params, _ = case(key())

    def loss(params):
        output, layers = collect_preactivations(apply, params, images)
        return jnp.square(layers["dense/kernel"][:4]).sum() + jnp.sin(output).sum()

    def by_hand(kernel):
        changed = {**params, "conv": {**params["conv"], "kernel": kernel}}
        output, layers = collect_preactivations(apply, changed, images)
        dense = np.asarray(layers["dense/kernel"], np.float64)[:4]
        return np.square(dense).sum() + np.sin(np.asarray(output, np.float64)).sum()

    kernel = params["conv"]["kernel"]
    direction = jax.random.normal(key(), kernel.shape)
    direction = direction / jnp.linalg.norm(direction.ravel())
    step = 1e-2  # Rounding, 1e-6 / step, and curvature, step^2, are both near 1e-4.
    slope = (by_hand(kernel + step * direction) - by_hand(kernel - step * direction)) / (2 * step)
    gradient = jax.grad(loss)(params)["conv"]["kernel"]
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-2, abs=1e-2)


def test_a_bias_that_is_not_added_directly_is_left_out(key):
    x, w, b = (jax.random.normal(key(), shape) for shape in ((4, 3), (3, 2), (2,)))

    def late(params, x):
        return jnp.tanh(2 * (x @ params["kernel"]) + params["bias"][None])

    def shared(params, x):
        h = x @ params["kernel"]
        return h * (h + params["bias"][None])

    for apply in (late, shared):
        output, layers = collect_preactivations(apply, {"kernel": w, "bias": b}, x)
        np.testing.assert_allclose(layers["kernel"], x @ w, rtol=1e-5)
        np.testing.assert_allclose(output, apply({"kernel": w, "bias": b}, x), rtol=1e-5)


def test_a_residual_sum_is_no_bias(key):
    x, w = jax.random.normal(key(), (4, 3)), jax.random.normal(key(), (3, 3))

    def apply(params, x):
        return x @ params["kernel"] + x

    output, layers = collect_preactivations(apply, {"kernel": w}, x)
    np.testing.assert_allclose(layers["kernel"], x @ w, rtol=1e-5)
    np.testing.assert_allclose(output, x @ w + x, rtol=1e-5)
