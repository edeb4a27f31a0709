"""The written-out method: its batch normalization against Flax's, the call's updates by hand."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxnorm as jn
from examples.networks.mbconv import MBConvNet
from examples.networks.mobilenet import MobileNetV2
from tests import written_out
from tests.written_out import (
    CLASSES,
    EPSILON,
    Kind,
    assert_close,
    batch_normalized,
    cross_entropy,
    drawn,
    folded,
    kept,
    minibatch,
    parameters,
    plain,
)


def of_flax(model: nnx.Module, name: str) -> dict[str, Any]:
    """Returns the variables of a layer of the committed networks, by the names of the hook."""
    module: Any = model
    for part in name.split("/"):
        module = module[int(part)] if part.isdigit() else getattr(module, part)
    conv, norm = (module.conv, module.norm) if hasattr(module, "conv") else (module, None)
    if norm is None:
        return {"kernel": conv.kernel, "bias": conv.bias}
    return {"kernel": conv.kernel, "bias": norm.bias, "scale": norm.scale}


def as_ours(model: nnx.Module, params: Any) -> Any:
    """Returns the values of a Flax model, or of its gradient, in the tree of the hook."""
    result = {}
    for name, leaf in params.items():
        found = {part: variable[...] for part, variable in of_flax(model, name).items()}
        result[name] = {part: found[part].reshape(leaf[part].shape) for part in leaf}
    return result


@pytest.mark.slow
@pytest.mark.parametrize(("name", "make"), [("mobilenet", MobileNetV2), ("mbconv", MBConvNet)])
def test_it_is_flax_s_batch_normalization_in_the_committed_networks(name: str, make: Any) -> None:
    network, (x, y) = partial(getattr(written_out, name), blocks=6), minibatch()
    model = make(nnx.Rngs(0), x.shape[1:], CLASSES, width=4)
    params = as_ours(model, drawn(network, jax.random.key(0), x[:1]))
    value, gradient = nnx.jit(nnx.value_and_grad(lambda model: cross_entropy(model(x), y)))(model)
    loss = lambda params: cross_entropy(batch_normalized(network, params, x)[0], y)  # noqa: E731
    made = jax.jit(jax.value_and_grad(loss))(params)
    assert_close(made, (value, as_ours(gradient, params)), 3e-4)


@pytest.mark.parametrize("name", ["chain", "residual"])
def test_with_the_moments_of_the_step_it_is_batch_normalization(name: str) -> None:
    with jax.enable_x64(True):
        network, (x, y) = getattr(written_out, name), minibatch(jnp.float64)
        params = parameters(network, x)
        averages = batch_normalized(network, params, x)[1]

        def gradient_of(logits_of: Any) -> Any:
            return jax.jit(jax.value_and_grad(lambda params: cross_entropy(logits_of(params), y)))

        made = gradient_of(lambda params: kept(network, params, averages, x)[0])(params)
        wanted = gradient_of(lambda params: batch_normalized(network, params, x)[0])(params)
        assert_close(made, wanted, 1e-10)


def test_its_forward_pass_is_that_of_the_plain_network() -> None:
    network, (x, _) = written_out.residual, minibatch()
    params = parameters(network, x)
    averages = batch_normalized(network, params, x[:3])[1]
    logits = kept(network, params, averages, x)[0]
    assert_close(logits, plain(network, folded(params, averages), x), 1e-4)
    assert_close(kept(network, params, averages, x[:1])[0], logits[:1], 1e-4)


def dense(layer: Any, x: jax.Array) -> jax.Array:
    """A network of dense layers with a residual branch."""
    x = jax.nn.relu(layer("a", x, Kind(5)))
    x = jax.nn.relu(x + layer("b", x, Kind(5)))
    return layer("c", x, Kind(CLASSES, normalized=False))


class ByHand:
    """The method for `dense` in NumPy: every derivative by hand."""

    def __init__(self, raw: Any):
        array = lambda value: np.array(value, np.float64).squeeze()  # noqa: E731
        nodes = {name: raw[name]["kernel"] for name in ("a", "b")}
        self.mean = {name: array(node.mean) for name, node in nodes.items()}
        self.var = {name: array(node.variance) for name, node in nodes.items()}
        self.params = {
            name: {
                "kernel": array(node.direction),
                "scale": array(node.scale),
                "bias": array(raw[name]["bias"]) + array(node.offset()),
            }
            for name, node in nodes.items()
        }
        self.params["c"] = {part: array(leaf) for part, leaf in raw["c"].items()}
        self.momentum = jax.tree.map(np.zeros_like, self.params)

    def up(self, name: str, x: Any) -> Any:
        """Returns a layer's outputs and ŷ."""
        leaf = self.params[name]
        y = (x @ leaf["kernel"] - self.mean[name]) / np.sqrt(self.var[name] + EPSILON)
        return leaf["scale"] * y + leaf["bias"], y

    def down(self, name: str, x: Any, y: Any, d: Any) -> Any:
        """Returns a layer's gradient and that of its inputs."""
        leaf, std = self.params[name], np.sqrt(self.var[name] + EPSILON)
        delta = d * leaf["scale"]
        z = (y - y.mean(0)) / np.sqrt(y.var(0) + EPSILON / std**2)
        delta = delta - delta.mean(0) - z * (delta * z).mean(0)
        gradient = {"kernel": x.T @ delta / std, "scale": (d * y).sum(0), "bias": d.sum(0)}
        return gradient, delta / std @ leaf["kernel"].T

    def step(self, x: Any, labels: Any, rate: float) -> float:
        """Updates everything, and returns the loss before."""
        a, y1 = self.up("a", x)
        h1 = np.maximum(a, 0)
        b, y2 = self.up("b", h1)
        h2 = np.maximum(h1 + b, 0)
        logits = h2 @ self.params["c"]["kernel"] + self.params["c"]["bias"]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        d = (p - np.eye(CLASSES)[labels]) / len(x)
        gradient = {"c": {"kernel": h2.T @ d, "bias": d.sum(0)}}
        d = d @ self.params["c"]["kernel"].T * (h2 > 0)
        gradient["b"], below = self.down("b", h1, y2, d)
        gradient["a"], _ = self.down("a", x, y1, (d + below) * (h1 > 0))
        for name, inputs in (("a", x), ("b", h1)):
            self.average(name, inputs @ self.params[name]["kernel"])
        self.momentum = jax.tree.map(lambda m, g: 0.9 * m + g, self.momentum, gradient)
        self.params = jax.tree.map(lambda p, m: p - rate * m, self.params, self.momentum)
        return float(-np.log(p[np.arange(len(x)), labels]).mean())

    def average(self, name: str, y: Any) -> None:
        """Moves the averages of a layer."""
        self.mean[name] = 0.9 * self.mean[name] + 0.1 * y.mean(0)
        self.var[name] = 0.9 * self.var[name] + 0.1 * y.var(0)


def test_twenty_updates_of_the_call_are_those_by_hand() -> None:
    draw = np.random.default_rng(2)
    x, y = draw.normal(0.5, 1, (20, 16, 4)), draw.integers(0, CLASSES, (20, 16))
    with jax.enable_x64(True):
        params = written_out.without_scales(parameters(dense, jnp.asarray(x[0])))
        apply = partial(plain, dense)
        in_loss, raw, tx = jn.moving_average_normalization(
            apply, params, optax.sgd(0.1, momentum=0.9), jnp.asarray(x[0]), zero_sums=False
        )
        by_hand = ByHand(raw)

        @jax.jit
        def update(raw: Any, state: Any, x: Any, y: Any) -> Any:
            loss = lambda raw: cross_entropy(in_loss(raw, x), y)  # noqa: E731
            value, gradient = jax.value_and_grad(loss)(raw)
            updates, state = tx.update(gradient, state, raw)
            return optax.apply_updates(raw, updates), state, value

        state = tx.init(raw)
        for rows, labels in zip(x, y, strict=True):
            raw, state, loss = update(raw, state, jnp.asarray(rows), jnp.asarray(labels))
            np.testing.assert_allclose(loss, by_hand.step(rows, labels, 0.1), rtol=1e-9)
        made = ByHand(raw)
        for part in ("params", "mean", "var"):
            assert_close(getattr(made, part), getattr(by_hand, part), 1e-8)
