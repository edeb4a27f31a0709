"""Kernels kept by slow averages, against batch normalization and a reference in NumPy."""

from collections.abc import Iterator
from functools import partial
from itertools import product as product_of
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxnorm as jn
from examples.keeping import agent, averaged, networks, reference, variants
from examples.keeping.averaged import Averaged
from examples.keeping.networks import Kind, along, convolution, drawn, plain, product
from examples.keeping.proxy import gaussian
from examples.keeping.reference import EPSILON, Settings, folded, forward, over_examples
from examples.keeping.stages import STAGES, VARIANTS
from examples.keeping.variants import (
    RELATIVE,
    Variant,
    batch_normalized,
    cross_entropy,
    estimated_anew,
    make_training,
    step,
)
from examples.networks.mbconv import MBConvNet
from examples.networks.mobilenet import MobileNetV2
from examples.networks.unet import UNet
from tests.kept_networks import CLASSES, assert_close, minibatch, parameters

WIDTH = 4
TINY = {
    name: partial(getattr(networks, name), classes=CLASSES, width=WIDTH)
    for name in ("chain", "residual", "mobilenet", "mbconv", "bottleneck", "unet")
}
SHORT = TINY | {name: partial(TINY[name], blocks=3) for name in ("mobilenet", "mbconv")}
stop = jax.lax.stop_gradient


def kept_gradient(network: Any, params: Any, averages: Any, x: Any, y: Any, s: Settings) -> Any:
    loss = lambda params: cross_entropy(forward(network, params, averages, x, s)[0], y)  # noqa: E731
    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.fixture
def small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions as single operations, which compile faster than products of matrices."""
    monkeypatch.setattr(reference, "product", convolution)
    monkeypatch.setattr(variants, "product", convolution)
    monkeypatch.setattr(averaged, "product", convolution)
    monkeypatch.setattr(networks, "product", convolution)


#: Network, float64, and `exact`.
CASES = [
    *((name, True, True) for name in TINY),
    ("residual", False, True),
    ("chain", True, False),
]


@pytest.mark.kept("residual-True", "chain-True-True")
@pytest.mark.usefixtures("small_programs")
@pytest.mark.parametrize(("name", "wide", "exact"), CASES)
def test_with_the_moments_of_the_step_it_is_batch_normalization(name, wide, exact) -> None:
    with jax.enable_x64(wide):
        network, (x, y) = SHORT[name], minibatch(jnp.float64 if wide else jnp.float32)
        params = parameters(network, x)
        loss = lambda params: cross_entropy(batch_normalized(network, params, x)[0], y)  # noqa: E731
        wanted = jax.jit(jax.value_and_grad(loss))(params)
        averages = batch_normalized(network, params, x)[1]
        made = kept_gradient(network, params, averages, x, y, Settings("full", exact=exact))
        assert_close(made, wanted, 1e-10 if wide else 3e-4)


def of_flax(model: nnx.Module, name: str) -> dict[str, Any]:
    """Returns the variables of a layer of the committed networks, by the names of the hook."""
    *path, last = name.split("/")
    module: Any = model
    for part in path:
        module = module[int(part)] if part.isdigit() else getattr(module, part)
    if last in ("first", "second"):
        number = 1 + (last == "second")
        conv, norm = getattr(module, f"conv{number}"), getattr(module, f"norm{number}")
    else:
        module = getattr(module, last)
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
@pytest.mark.usefixtures("small_programs")
@pytest.mark.parametrize(
    ("name", "make"), [("mobilenet", MobileNetV2), ("mbconv", MBConvNet), ("unet", UNet)]
)
def test_it_is_flax_s_batch_normalization_in_the_committed_networks(name, make) -> None:
    network, (x, y) = TINY[name], minibatch()
    model = make(nnx.Rngs(0), x.shape[1:], CLASSES, width=WIDTH)
    params = as_ours(model, drawn(network, jax.random.key(0), x[:1]))
    loss = nnx.jit(nnx.value_and_grad(lambda model: cross_entropy(model(x), y)))
    value, gradient = loss(model)
    made = kept_gradient(
        network, params, batch_normalized(network, params, x)[1], x, y, Settings("full")
    )
    assert_close(made, (value, as_ours(gradient, params)), 3e-4)


@pytest.mark.kept("residual")
@pytest.mark.usefixtures("small_programs")
@pytest.mark.parametrize("name", ["residual", "mbconv"])
def test_own_is_batch_normalization_of_each_layer_alone(name: str) -> None:
    """The layers below get the gradient through constant statistics, by autodiff."""

    def own(params: Any, x: jax.Array) -> jax.Array:
        def layer(name: str, x: jax.Array, kind: Kind) -> jax.Array:
            leaf, kernel = params[name], params[name]["kernel"]
            if not kind.normalized:
                y = convolution(x, kernel, kind)
                return y + along(leaf["bias"], y)
            a = convolution(stop(x), kernel, kind)
            mean = over_examples(a)
            std = jnp.sqrt(over_examples((a - mean) ** 2) + EPSILON)
            below = (convolution(x, stop(kernel), kind) - stop(mean)) / stop(std)
            y = (a - mean) / std + below - stop(below)
            return along(leaf["scale"], y) * y + along(leaf["bias"], y)

        return SHORT[name](layer, x)

    with jax.enable_x64(True):
        x, y = minibatch(jnp.float64)
        params = parameters(SHORT[name], x)
        loss = lambda params: cross_entropy(own(params, x), y)  # noqa: E731
        averages = batch_normalized(SHORT[name], params, x)[1]
        made = kept_gradient(SHORT[name], params, averages, x, y, Settings("own"))
        assert_close(made, jax.jit(jax.value_and_grad(loss))(params), 1e-10)


def root_mean_square(network: Any, params: Any, x: jax.Array) -> jax.Array:
    """Returns the logits of kernels with zero sums, divided by the batch's second moments."""

    def layer(name: str, x: jax.Array, kind: Kind) -> jax.Array:
        leaf, kernel = params[name], params[name]["kernel"]
        if not kind.normalized:
            y = convolution(x, kernel, kind)
            return y + along(leaf["bias"], y)
        y = convolution(x, kernel - kernel.mean((0, 1, 2), keepdims=True), kind)
        y = y / jnp.sqrt(over_examples(y**2) + EPSILON)
        return along(leaf["scale"], y) * y + along(leaf["bias"], y)

    return network(layer, x)


@pytest.mark.kept("residual")
@pytest.mark.usefixtures("small_programs")
@pytest.mark.parametrize("zero_sums", [False, True])
@pytest.mark.parametrize("name", ["residual", "mbconv"])
def test_averages_that_forget_at_once_are_those_of_the_step(name: str, zero_sums: bool) -> None:
    with jax.enable_x64(True):
        network, (x, y) = SHORT[name], minibatch(jnp.float64)
        params, s = parameters(SHORT[name], x), Averaged(zero_sums=zero_sums)
        logits = root_mean_square if zero_sums else lambda *a: batch_normalized(*a)[0]
        loss = lambda params: cross_entropy(logits(network, params, x), y)  # noqa: E731
        averages = averaged.started(network, params, x, s)

        def made(params: Any) -> jax.Array:
            return cross_entropy(averaged.forward(network, params, averages, x, s)[0], y)

        wanted = jax.jit(jax.value_and_grad(loss))(params)
        assert_close(jax.jit(jax.value_and_grad(made))(params), wanted, 1e-10)


@pytest.mark.usefixtures("small_programs")
@pytest.mark.parametrize("backward", ["own", "full"])
def test_the_forward_pass_is_that_of_the_plain_network(backward: str) -> None:
    network, (x, _) = TINY["residual"], minibatch()
    params = parameters(network, x)
    averages = batch_normalized(network, params, x[:3])[1]
    logits = forward(network, params, averages, x, Settings(backward))[0]
    assert_close(logits, plain(network, folded(params, averages), x, convolution), 1e-4)
    alone = forward(network, params, averages, x[:1], Settings(backward))[0]
    assert_close(alone, logits[:1], 1e-4)


KINDS = [
    Kind(5),
    Kind(5, 3),
    Kind(5, 3, 2),
    Kind(3, 5, 2, depthwise=True),
    Kind(5, 2, upsampling=True),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_library_reads_the_same_function(kind: Kind) -> None:
    x, _ = minibatch()
    draw = np.random.default_rng(3)
    inputs = 1 if kind.depthwise else 3
    kernel = jnp.asarray(draw.normal(size=(kind.window, kind.window, inputs, kind.units)), x.dtype)
    assert_close(convolution(x, kernel, kind), product(x, kernel, kind), 1e-5)


def test_statistics_estimated_anew_are_those_of_all_rows_of_a_first_layer() -> None:
    x, _ = minibatch()
    params = parameters(TINY["chain"], x)
    anew = estimated_anew(TINY["chain"], params, x.reshape(3, 2, *x.shape[1:]))["first"]
    a = np.asarray(product(x, params["first"]["kernel"], Kind(WIDTH, 3)), np.float64)
    np.testing.assert_allclose(anew.mean, a.mean((0, 1, 2)), atol=1e-5)
    np.testing.assert_allclose(anew.var, a.var((0, 1, 2)), rtol=1e-5)


@pytest.mark.usefixtures("small_programs")
def test_averages_that_look_ahead_are_those_of_the_next_parameters() -> None:
    """With a decay of 0, they are batch normalization's on the same examples after the step."""
    with jax.enable_x64(True):
        x, y = minibatch(jnp.float64)
        variant = Variant("ahead", Settings("full"), decay=0.0, ahead=True)
        training = make_training(TINY["residual"], variant, x)
        update = jax.jit(partial(step, training))
        (params, memory, _), _ = update(0, jnp.float64(0.1), training.start(0, x), x, y)
        assert_close(memory, batch_normalized(TINY["residual"], params, x)[1], 1e-9)


@pytest.mark.parametrize("activation", [jax.nn.relu6, jax.nn.swish])
def test_proxies_are_the_moments_of_gaussian_activations(activation: Any) -> None:
    shifts = np.array([-1.5, 0.0, 0.7], np.float32)
    made = gaussian(activation, jnp.asarray(shifts))
    wanted = [jn.normprop.gaussian_moments(lambda z, b=b: activation(z + b)) for b in shifts]
    np.testing.assert_allclose(np.transpose(made), wanted, rtol=3e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("small_programs")
def test_the_call_with_proxies_starts_with_unit_variance_and_trains() -> None:
    x, y = minibatch()
    network = SHORT["mobilenet"]
    training = make_training(network, Variant("call", clipped=True, proxy="all"), x)
    carry = training.start(0, x)
    assert all(bool((leaf["shift"] == 0).all()) for leaf in shifted_leaves(training, carry))
    opt_state = training.renewed(carry[2], *carry[:2], x)
    update = jax.jit(partial(step, training))
    carry, (first, _) = update(0, jnp.float32(0.1), (*carry[:2], opt_state), x, y)
    carry, (second, _) = update(1, jnp.float32(0.1), carry, x, y)
    assert second < first
    assert any(bool((leaf["shift"] != 0).any()) for leaf in shifted_leaves(training, carry))


def shifted_leaves(training: Any, carry: Any) -> list[Any]:
    leaves = training.plain_params(*carry[:2]).values()
    return [leaf for leaf in leaves if "shift" in leaf]


@pytest.mark.usefixtures("small_programs")
@pytest.mark.parametrize("part", ["quiet", "zero sums", "relative"])
def test_older_parts_do_what_their_names_say(part: str) -> None:
    x, y = minibatch()
    training = make_training(TINY["residual"], Variant("full", Settings("full"), parts=(part,)), x)
    start = training.start(0, x)
    if part == "quiet":
        for name, leaf in start[0].items():
            wanted = 2**-0.5 if name.endswith("second") else 1
            np.testing.assert_allclose(leaf.get("scale", wanted), wanted, rtol=1e-6)
        return
    (params, memory, _), _ = jax.jit(partial(step, training))(0, jnp.float32(0.1), start, x, y)
    kernel = params["block 0/first"]["kernel"]
    if part == "zero sums":
        plain_kernel = training.plain_params(params, memory)["block 0/first"]["kernel"]
        np.testing.assert_allclose(plain_kernel.sum((0, 1, 2)), 0, atol=1e-5)
        return
    moved = jnp.linalg.norm(
        (kernel - start[0]["block 0/first"]["kernel"]).reshape(-1, WIDTH), axis=0
    )
    length = jnp.linalg.norm(start[0]["block 0/first"]["kernel"].reshape(-1, WIDTH), axis=0)
    np.testing.assert_allclose(moved / length, 0.1 * RELATIVE, rtol=1e-4)


def test_an_agent_that_follows_the_ball_catches_it() -> None:
    def follows(x: jax.Array) -> jax.Array:
        ball = x[:, :-1, :, 0].sum(1).argmax(-1)
        paddle = x[:, -1, :, 0].argmax(-1)
        return jax.nn.one_hot(jnp.sign(ball - paddle) + 1, agent.ACTIONS)

    stays = lambda x: jax.nn.one_hot(jnp.ones(len(x), jnp.int32), agent.ACTIONS)  # noqa: E731
    assert agent.greedy_return(follows, jax.random.key(0)) == 1
    assert abs(agent.greedy_return(stays, jax.random.key(0)) - (2 / agent.COLUMNS - 1)) < 0.2


def dense(layer: Any, x: jax.Array) -> jax.Array:
    """A network of dense layers with a residual branch."""
    x = jax.nn.relu(layer("a", x, Kind(5)))
    x = jax.nn.relu(x + layer("b", x, Kind(5)))
    return layer("c", x, Kind(CLASSES, normalized=False))


class Written:
    """The method for `dense`, written out in NumPy: every derivative by hand."""

    def __init__(self, params: Any, averages: Any, s: Any, decay: float):
        array = partial(np.array, dtype=np.float64)
        self.params = {
            n: {p: array(v).squeeze() for p, v in leaf.items()} for n, leaf in params.items()
        }
        self.mean = {n: array(m.mean) for n, m in averages.items()}
        self.var = {n: array(m.var) for n, m in averages.items()}
        self.momentum = {n: {p: 0 * v for p, v in leaf.items()} for n, leaf in self.params.items()}
        self.s, self.decay = s, decay

    def up(self, n: str, x: Any) -> Any:
        """Returns a layer's outputs and ŷ."""
        leaf = self.params[n]
        y = (x @ leaf["kernel"] - self.mean[n]) / np.sqrt(self.var[n] + EPSILON)
        return leaf["scale"] * y + leaf["bias"], y

    def down(self, n: str, x: Any, y: Any, d: Any) -> Any:
        """Returns a layer's gradient and that of its inputs."""
        leaf, std = self.params[n], np.sqrt(self.var[n] + EPSILON)
        delta = d * leaf["scale"]
        epsilon = EPSILON / std**2
        z = (y - y.mean(0)) / np.sqrt(y.var(0) + epsilon) if self.s.exact else y
        kept = delta - delta.mean(0) - z * (delta * z).mean(0)
        gradient = {"kernel": x.T @ kept / std, "scale": (d * y).sum(0), "bias": d.sum(0)}
        below = kept if self.s.backward == "full" else delta
        return gradient, below / std @ leaf["kernel"].T

    def step(self, x: Any, labels: Any, rate: float) -> float:
        a, y1 = self.up("a", x)
        h1 = np.maximum(a, 0)
        b, y2 = self.up("b", h1)
        h2 = np.maximum(h1 + b, 0)
        logits = h2 @ self.params["c"]["kernel"] + self.params["c"]["bias"]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        loss = -np.log(p[np.arange(len(x)), labels]).mean()
        d = (p - np.eye(CLASSES)[labels]) / len(x)
        gradient = {"c": {"kernel": h2.T @ d, "bias": d.sum(0)}}
        d = d @ self.params["c"]["kernel"].T * (h2 > 0)
        gradient["b"], below = self.down("b", h1, y2, d)
        gradient["a"], _ = self.down("a", x, y1, (d + below) * (h1 > 0))
        updates = self.sgd(gradient, rate)
        for n, inputs in (("a", x), ("b", h1)):
            self.average(n, inputs, updates[n]["kernel"])
        for n, leaf in updates.items():
            for part, update in leaf.items():
                self.params[n][part] = self.params[n][part] + update
        return loss

    def sgd(self, gradient: Any, rate: float) -> Any:
        """Returns the updates."""
        for n, leaf in gradient.items():
            for part, g in leaf.items():
                g = g + 1e-3 * self.params[n][part] * (part == "kernel")
                self.momentum[n][part] = 0.9 * self.momentum[n][part] + g
        return {n: {p: -rate * m for p, m in leaf.items()} for n, leaf in self.momentum.items()}

    def average(self, n: str, x: Any, update: Any) -> None:
        """Moves the averages of a layer."""
        a = x @ self.params[n]["kernel"]
        self.mean[n] = self.decay * self.mean[n] + (1 - self.decay) * a.mean(0)
        self.var[n] = self.decay * self.var[n] + (1 - self.decay) * a.var(0)
        if self.s.predicted:
            covariance = (x - x.mean(0)).T @ (a - a.mean(0)) / len(x)
            self.mean[n] = self.mean[n] + x.mean(0) @ update
            moved = self.var[n] + 2 * (covariance * update).sum(0)
            self.var[n] = np.maximum(moved, self.var[n] / 4)


class WrittenSlow(Written):
    """The same with backward statistics that are averages."""

    def __init__(self, params: Any, averages: Any, s: Averaged, decay: float):
        super().__init__(params, averages, s, decay)
        self.inputs = {n: np.array(m.inputs).squeeze()[:, 0] for n, m in averages.items()}
        self.delta, self.delta_y, self.age = dict.fromkeys("ab", 0), dict.fromkeys("ab", 0), 0

    def kernel(self, n: str) -> Any:
        kernel = self.params[n]["kernel"]
        return kernel - kernel.mean(0) if self.s.zero_sums else kernel

    def up(self, n: str, x: Any) -> Any:
        leaf = self.params[n]
        y = (x @ self.kernel(n) - self.mean[n]) / np.sqrt(self.var[n] + EPSILON)
        return leaf["scale"] * y + leaf["bias"], y

    def down(self, n: str, x: Any, y: Any, d: Any) -> Any:
        leaf, std = self.params[n], np.sqrt(self.var[n] + EPSILON)
        delta = d * leaf["scale"]
        share = max(1 - self.s.decay, 1 / (self.age + 1))
        self.age += n == "a"
        self.delta[n] = (1 - share) * self.delta[n] + share * delta.mean(0)
        self.delta_y[n] = (1 - share) * self.delta_y[n] + share * (delta * y).mean(0)
        gradient = {"scale": (d * y).sum(0), "bias": d.sum(0)}
        if self.s.zero_sums:
            kept = delta - y * self.delta_y[n]
            kernel = x.T @ kept / std
            return gradient | {"kernel": kernel - kernel.mean(0)}, kept / std @ self.kernel(n).T
        below = delta
        if self.s.below == "averaged":
            below = delta - self.delta[n] - y * self.delta_y[n]
        if self.s.own == "slow":
            kernel, v = (x - self.inputs[n]).T @ delta / std, leaf["kernel"]
            kernel = kernel - v * (v * kernel).sum(0) / (v**2).sum(0)
        else:
            z = (y - y.mean(0)) / np.sqrt(y.var(0) + EPSILON / std**2)
            kernel = x.T @ (delta - delta.mean(0) - z * (delta * z).mean(0)) / std
        return gradient | {"kernel": kernel}, below / std @ leaf["kernel"].T

    def average(self, n: str, x: Any, update: Any) -> None:
        mixed = lambda old, new: self.decay * old + (1 - self.decay) * new  # noqa: E731
        a = x @ self.kernel(n)
        if self.s.zero_sums:
            self.var[n] = mixed(self.var[n], (a**2).mean(0))
            return
        self.mean[n], self.var[n] = mixed(self.mean[n], a.mean(0)), mixed(self.var[n], a.var(0))
        self.inputs[n] = mixed(self.inputs[n], x.mean(0))


@pytest.fixture
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


MODES = [
    *(Settings(*mode) for mode in product_of(("own", "full"), (False, True), (False, True))),
    *(Averaged(*mode) for mode in product_of(("batch", "slow"), ("plain", "averaged"))),
    Averaged(zero_sums=True),
]


@pytest.mark.kept("own-False-False", "full-True-True", "slow-averaged-False", "averaged-True")
@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("s", MODES, ids=lambda s: "-".join(map(str, s)))
def test_twenty_updates_are_those_of_the_written_reference(s: Any) -> None:
    draw = np.random.default_rng(2)
    x, y = draw.normal(0.5, 1, (20, 16, 4)), draw.integers(0, CLASSES, (20, 16))
    variant = Variant("kept", s, decay=0.9)
    training = make_training(dense, variant, jnp.asarray(x[0]))
    carry = training.start(0, jnp.asarray(x[0]))
    written = (WrittenSlow if isinstance(s, Averaged) else Written)(*carry[:2], s, 0.9)
    update = jax.jit(partial(step, training))
    for t in range(20):
        carry, (loss, _) = update(t, jnp.float64(0.1), carry, jnp.asarray(x[t]), jnp.asarray(y[t]))
        np.testing.assert_allclose(loss, written.step(x[t], y[t], 0.1), rtol=1e-9)
    for name, leaf in written.params.items():
        made = {part: np.squeeze(value) for part, value in carry[0][name].items()}
        assert_close(made, leaf, 1e-8)
    for name, var in written.var.items():
        assert_close(carry[1][name].var, var, 1e-8)
        assert_close(carry[1][name].mean, written.mean[name], 1e-8)


def test_each_run_of_the_plan_is_named_once_and_known() -> None:
    for runs in STAGES.values():
        assert len(set(runs)) == len(runs)
        assert {run.variant for run in runs} <= VARIANTS.keys()
        assert {run.network for run in runs} <= networks.NETWORKS.keys()
