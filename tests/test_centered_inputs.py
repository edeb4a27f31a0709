"""Centered inputs: the wrapped optimizer trains W (x - C) + b', and nothing else changes."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm import (
    CenteredInputsState,
    WeightNormalized,
    centered_gradient,
    centered_inputs,
    clip_by_layer_norm,
    input_means,
    layout_from_rules,
    read,
    refresh_input_means,
    reparametrize,
    zero_sum_projection,
)
from tests.devices import mesh
from tests.draws import draw
from tests.trees import QUICK, assert_close

X = 1.5 + draw(0, 6, 6, 6, 3)
LABELS = jnp.arange(6) % 5
CONVOLUTIONS = {
    # name: kernel, strides, dilation of the input, groups, padding
    "plain": ((3, 3, 3, 4), 1, 1, 1, "SAME"),
    "strided": ((3, 3, 3, 4), 2, 1, 1, "SAME"),
    "valid": ((2, 3, 3, 4), 1, 1, 1, "VALID"),
    "grouped": ((3, 3, 1, 6), 1, 1, 3, "SAME"),
    "transposed": ((2, 2, 3, 4), 1, 2, 1, ((1, 1), (1, 1))),
}


def convolve(x: Any, kernel: Any, stride: int, dilation: int, groups: int, padding: Any) -> Any:
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        padding,
        lhs_dilation=(dilation, dilation),
        feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def layer(seed: int, *shape: int) -> dict[str, jax.Array]:
    return {"kernel": 0.3 * draw(seed, *shape), "bias": draw(seed + 1, shape[-1])}


PARAMS = {
    "conv": layer(1, 3, 3, 3, 4),
    "depthwise": layer(3, 3, 3, 1, 4),
    "up": layer(5, 2, 2, 4, 5),
    "head": layer(7, 5, 5),
}
#: How each layer is called: stride, dilation of its input, groups, padding.
CALLS = {
    "conv": (2, 1, 1, "SAME"),
    "depthwise": (1, 1, 4, "SAME"),
    "up": (1, 2, 1, ((1, 1), (1, 1))),
}


def plus_bias(x: Any, bias: Any) -> Any:
    return x + bias.reshape((1,) * (x.ndim - 1) + (-1,))


def network(params: Any, x: Any) -> Any:
    for name, call in CALLS.items():
        x = plus_bias(convolve(x, params[name]["kernel"], *call), params[name]["bias"])
        x = jax.nn.relu(x)
    return plus_bias(x.mean((1, 2)) @ params["head"]["kernel"], params["head"]["bias"])


def shift(params: Any, means: Any, sign: float) -> Any:
    """Parameters with b + sign sum(W C) in the place of b."""

    def shifted(name: str) -> Any:
        kernel, bias = params[name]["kernel"], params[name]["bias"]
        moved = (kernel * means[name]["kernel"]).sum(tuple(range(kernel.ndim - 1)))
        return {"kernel": kernel, "bias": bias + sign * moved}

    return {name: shifted(name) for name in params}


@pytest.fixture(scope="module")
def means() -> Any:
    return input_means(read(network, PARAMS, X))


def loss(apply: Any, params: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(apply(params, X), LABELS).mean()


@pytest.fixture(scope="module")
def gradient() -> Any:
    return jax.jit(jax.grad(partial(loss, network)), compiler_options=QUICK)


@pytest.fixture(scope="module")
def explicit_gradient(means: Any) -> Any:
    """Gradient of the network of W (x - C) + b', written out, by W and b'."""
    explicit = lambda params: loss(network, shift(params, means, -1.0))  # noqa: E731
    return jax.jit(jax.grad(explicit), compiler_options=QUICK)


@pytest.fixture(autouse=True)
def _promotion() -> Iterator[None]:
    """Optax's own counters want the standard rules."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.kept("plain", "transposed")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_means_are_what_the_taps_see(name: str) -> None:
    """With one tap set to 1 the mean output of its unit is that tap's mean input."""
    shape, *call = CONVOLUTIONS[name]
    params = {"w": draw(9, *shape), "b": jnp.zeros(shape[-1])}
    found = input_means(
        read(lambda p, x: plus_bias(convolve(x, p["w"], *call), p["b"]), params, X)
    )["w"]
    x = np.asarray(X, np.float64)
    found = np.broadcast_to(found, shape)
    for tap in [(0, 0, 0, 0), (1, 1, shape[2] - 1, shape[3] - 1), (0, 1, 0, shape[3] - 1)]:
        one = np.zeros(shape)
        one[tap] = 1
        expected = convolve(x.astype(np.float32), jnp.asarray(one, jnp.float32), *call)
        np.testing.assert_allclose(found[tap], expected[..., tap[-1]].mean(), rtol=1e-5)


def test_the_mean_of_a_dense_layer_is_that_of_its_inputs() -> None:
    x = draw(0, 7, 4) + 3
    params = {"w": draw(1, 4, 2), "b": jnp.zeros(2)}
    found = input_means(read(lambda p, x: plus_bias(x @ p["w"], p["b"]), params, x))["w"]
    np.testing.assert_allclose(found[:, 0], np.asarray(x, np.float64).mean(0), rtol=1e-6)
    assert found.shape == (4, 1)


LAYOUT = layout_from_rules([("(conv|up)/kernel", (0, 1, 2)), (".", None)])
KERNELS = {name: {"kernel": True, "bias": False} for name in PARAMS}
OPTIMIZERS = {
    "momentum": optax.sgd(0.1, momentum=0.9),
    "nesterov": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "decay of kernels": optax.chain(
        optax.add_decayed_weights(0.1, mask=KERNELS), optax.sgd(0.1, momentum=0.9)
    ),
    "decay of everything": optax.adamw(0.01, eps=1e-3, weight_decay=0.1),
    "layer clipping": optax.chain(clip_by_layer_norm(0.05), optax.sgd(0.3, momentum=0.9)),
    "adaptive clipping": optax.chain(optax.adaptive_grad_clip(0.05), optax.sgd(0.3)),
    "lamb": optax.lamb(0.01),
    "zero sums": optax.chain(
        centered_gradient(LAYOUT), optax.adam(0.01), zero_sum_projection(LAYOUT)
    ),
    "accumulated": optax.MultiSteps(optax.sgd(0.1, momentum=0.9), 2).gradient_transformation(),
    "schedule-free": optax.contrib.schedule_free_sgd(0.1),
}
QUICK_ONES = pytest.mark.kept("nesterov", "decay of everything", "zero sums", "accumulated")


@QUICK_ONES
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_that_of_centered_inputs_written_out(
    name: str, means: Any, gradient: Any, explicit_gradient: Any
) -> None:
    """Both end at one function after twenty steps."""
    inner = OPTIMIZERS[name]
    tx = centered_inputs(read(network, PARAMS, X), inner)
    params, state = PARAMS, tx.init(PARAMS)
    written = shift(PARAMS, means, 1.0)
    written_state = inner.init(written)
    step, written_step = (jax.jit(t.update, compiler_options=QUICK) for t in (tx, inner))
    for _ in range(20):
        updates, state = step(gradient(params), state, params)
        params = optax.apply_updates(params, updates)
        updates, written_state = written_step(explicit_gradient(written), written_state, written)
        written = optax.apply_updates(written, updates)
    back = shift(written, means, -1.0)
    assert_close(params, back, {"rtol": 1e-3, "atol": 3e-4})
    assert float(jnp.abs(params["head"]["bias"] - PARAMS["head"]["bias"]).max()) > 1e-3


def test_outside_accumulation_and_averages_work_as_they_are(gradient: Any) -> None:
    """Two halves of a gradient, accumulated outside, are one step with their mean."""
    tx = centered_inputs(read(network, PARAMS, X), optax.sgd(0.1, momentum=0.9))
    whole = gradient(PARAMS)
    parts = [jax.tree.map(lambda g, k=k: k * g, whole) for k in (0.5, 1.5)]
    outside = optax.MultiSteps(tx, 2).gradient_transformation()
    state = outside.init(PARAMS)
    _, state = outside.update(parts[0], state, PARAMS)
    updates, _ = outside.update(parts[1], state, PARAMS)
    expected, _ = tx.update(whole, tx.init(PARAMS), PARAMS)
    assert_close(updates, expected)


@pytest.mark.kept("sgd")
@pytest.mark.parametrize(
    "inner", [optax.sgd(0.1, momentum=0.9), optax.adam(0.1)], ids=["sgd", "adam"]
)
def test_a_refresh_carries_momentum_over(inner: Any, gradient: Any) -> None:
    """The state is that of an optimizer that has had the new means from the beginning."""
    other = 3 - 2 * X
    old = centered_inputs(read(network, PARAMS, X), inner)
    new = centered_inputs(read(network, PARAMS, other), inner)
    states = []
    for tx in (old, new):
        state = tx.init(PARAMS)
        for scale in (1.0, -0.3):
            g = jax.tree.map(lambda g, s=scale: s * g, gradient(PARAMS))
            _, state = tx.update(g, state, PARAMS)
        states.append(state)
    refreshed = refresh_input_means(read(network, PARAMS, other), states[0], decay=0.0)
    field = "mu" if hasattr(states[1].inner_state[0], "mu") else "trace"
    momentum, expected = (getattr(s.inner_state[0], field) for s in (refreshed, states[1]))
    assert_close(momentum, expected)
    assert_close(refreshed.means, states[1].means)


def test_a_refresh_averages_and_finds_the_state_anywhere() -> None:
    tx = optax.chain(
        optax.clip_by_global_norm(1.0), centered_inputs(read(network, PARAMS, X), optax.sgd(0.1))
    )
    before = optax.MultiSteps(tx, 2).init(PARAMS)
    refresh = jax.jit(lambda s, x: refresh_input_means(read(network, PARAMS, x), s, decay=0.75))
    after = refresh(before, 2 * X)
    (old,), (new,) = (
        [x for x in jax.tree.leaves(s, is_leaf=is_state) if is_state(x)] for s in (before, after)
    )
    expected = 0.75 * old.means["conv"]["kernel"] + 0.25 * 2 * old.means["conv"]["kernel"]
    np.testing.assert_allclose(new.means["conv"]["kernel"], expected, rtol=1e-5)


def is_state(x: Any) -> bool:
    return isinstance(x, CenteredInputsState)


def test_what_cannot_be_made_up_for_is_left_alone() -> None:
    """A bias after a gain, one of two kernels, no bias, and a reparametrized kernel."""
    params = {
        "gain": {"kernel": draw(1, 3, 3), "gain": jnp.ones(3), "bias": draw(2, 3)},
        "one": {"kernel": draw(3, 3, 3)},
        "two": {"kernel": draw(4, 3, 3), "bias": draw(5, 3)},
        "node": {"kernel": draw(6, 3, 3), "bias": draw(7, 3)},
        "own": {"kernel": draw(8, 3, 2), "bias": draw(9, 2)},
    }

    def apply(p: Any, x: Any) -> Any:
        x = (x @ p["gain"]["kernel"]) * p["gain"]["gain"][None] + p["gain"]["bias"][None]
        bias = p["two"]["bias"][None]
        x = jnp.tanh(x @ p["one"]["kernel"] + bias) + jnp.tanh(x @ p["two"]["kernel"] + bias)
        x = x @ p["node"]["kernel"] + p["node"]["bias"][None]
        return x @ p["own"]["kernel"] + p["own"]["bias"][None]

    node = reparametrize(
        params, WeightNormalized, layout_from_rules([("node/kernel", 0), (".", None)])
    )
    raw_apply = lambda raw, x: apply(raw | {"node": params["node"]}, x)  # noqa: E731
    for apply_, tree in ((apply, params), (raw_apply, node)):
        found = input_means(read(apply_, tree, draw(0, 5, 3)))
        measured = {name for name, means in found.items() if jax.tree.leaves(means)}
        assert measured == ({"node", "own"} if tree is params else {"own"})


def test_frozen_leaves_that_a_partition_hides_do_not_move(gradient: Any) -> None:
    inner = centered_inputs(read(network, PARAMS, X), optax.sgd(0.1))
    labels = {
        name: {"kernel": "train", "bias": "freeze" if name == "conv" else "train"}
        for name in PARAMS
    }
    tx = optax.partition({"train": inner, "freeze": optax.set_to_zero()}, labels)
    updates, _ = tx.update(gradient(PARAMS), tx.init(PARAMS), PARAMS)
    assert not updates["conv"]["bias"].any()
    plain, _ = optax.sgd(0.1).update(gradient(PARAMS), optax.sgd(0.1).init(PARAMS))
    assert_close(updates["conv"]["kernel"], plain["conv"]["kernel"])
    assert np.abs(updates["up"]["kernel"] - plain["up"]["kernel"]).max() > 1e-4


def stacked(params: Any) -> Any:
    return jax.tree.map(lambda *x: jnp.stack(x), *params)


def test_a_scan_and_a_loop_have_equal_means() -> None:
    """The layers of a stack have the means of the layers of a list; so with a checkpoint."""
    layers = [layer(n, 4, 4) for n in (1, 3, 5)]
    x = draw(0, 8, 4) + 1

    def block(x: Any, p: Any) -> Any:
        return jax.nn.relu(plus_bias(x @ p["kernel"], p["bias"]))

    def loop(params: Any, x: Any) -> Any:
        for p in params:
            x = block(x, p)
        return x

    def scan(params: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, p: (jax.checkpoint(block)(x, p), None), x, params)[0]

    one, other = input_means(read(loop, layers, x)), input_means(read(scan, stacked(layers), x))
    assert other["kernel"].shape == (3, 4, 1)
    for n, means in enumerate(one):
        np.testing.assert_allclose(other["kernel"][n], means["kernel"], rtol=1e-5)


def test_a_shared_layer_has_the_average_over_its_uses() -> None:
    params, x = layer(1, 4, 4), draw(0, 8, 4) + 1

    def twice(p: Any, x: Any) -> Any:
        h = jax.nn.relu(plus_bias(x @ p["kernel"], p["bias"]))
        return plus_bias(h @ p["kernel"], p["bias"])

    hidden = np.maximum(np.asarray(x @ params["kernel"] + params["bias"][None]), 0)
    expected = (np.asarray(x).mean(0) + hidden.mean(0)) / 2
    np.testing.assert_allclose(
        input_means(read(twice, params, x))["kernel"][:, 0], expected, rtol=1e-5
    )


def test_learned_latents_are_inputs_where_they_are_named() -> None:
    """A kernel on learned latents has their mean; the same function has to be named each time."""
    params = {"latents": draw(0, 5, 4), "first": layer(1, 4, 4), "second": layer(3, 4, 3)}

    def apply(p: Any, x: Any) -> Any:
        query = plus_bias(p["latents"] @ p["first"]["kernel"], p["first"]["bias"])
        return plus_bias(jax.nn.relu(x @ query.T @ query) @ p["second"]["kernel"], jnp.zeros(3))

    x, latents = draw(5, 8, 4), ["latents"]
    found = input_means(read(apply, params, x, as_inputs=latents))["first"]["kernel"]
    np.testing.assert_allclose(found[:, 0], np.asarray(params["latents"]).mean(0), rtol=1e-5)
    tx = centered_inputs(read(apply, params, x, as_inputs=latents), optax.sgd(0.1))
    state = refresh_input_means(read(apply, params, x, as_inputs=latents), tx.init(params))
    np.testing.assert_allclose(state.means["first"]["kernel"], found, rtol=1e-5)
    with pytest.raises(ValueError, match=r"first/kernel.*as_inputs="):
        refresh_input_means(read(apply, params, x), tx.init(params))


def test_devices_average_their_means(means: Any) -> None:
    """Two devices with half of the rows each, and one device with a sharded batch, agree."""
    over = mesh(2)
    split = jax.shard_map(
        lambda x: input_means(read(network, PARAMS, x), axis_name="data"),
        mesh=over,
        in_specs=P("data"),
        out_specs=P(),
        check_vma=False,
    )
    assert_close(jax.jit(split)(X), means)


def test_functions_of_parameters_are_refused() -> None:
    tx = centered_inputs(read(network, PARAMS, X), optax.scale_by_backtracking_linesearch(5))
    state = tx.init(PARAMS)
    with pytest.raises(ValueError, match=r"value_fn.*Line searches"):
        tx.update(PARAMS, state, PARAMS, value=1.0, grad=PARAMS, value_fn=lambda p: jnp.zeros(()))


def test_errors_teach() -> None:
    bare = lambda p, x: x @ p["kernel"]  # noqa: E731
    with pytest.raises(ValueError, match="bias of its own"):
        centered_inputs(read(bare, {"kernel": jnp.ones((3, 2))}, jnp.ones((4, 3))), optax.sgd(0.1))
    with pytest.raises(ValueError, match="contains no centered_inputs"):
        refresh_input_means(read(network, PARAMS, X), optax.sgd(0.1).init(PARAMS))
    state = centered_inputs(read(network, PARAMS, X), optax.sgd(0.1)).init(PARAMS)
    with pytest.raises(ValueError, match=r"decay is 1\.5"):
        refresh_input_means(read(network, PARAMS, X), state, decay=1.5)


def test_a_bias_that_is_stacked_along_its_last_axis_is_left_alone() -> None:
    """Its layers are not along the kernel's first axis, where its values would be looked for."""
    params = {"kernel": draw(1, 3, 4, 4), "bias": draw(2, 4, 3)}

    def apply(p: Any, x: Any, last: bool) -> Any:
        biases = p["bias"].T if last else p["bias"].reshape(3, 4)
        layer = lambda x, slices: (jnp.tanh(x @ slices[0] + slices[1][None]), None)  # noqa: E731
        return jax.lax.scan(layer, x, (p["kernel"], biases))[0]

    x, first = draw(3, 6, 4), params | {"bias": params["bias"].T}
    assert input_means(read(apply, first, x, False))["kernel"].shape == (3, 4, 1)
    assert isinstance(input_means(read(apply, params, x, True))["kernel"], optax.MaskedNode)


@pytest.mark.parametrize(("rows", "decay"), [(2, 1 - 2 / 640), (64, 0.9), (128, 0.9)])
def test_the_default_average_spans_some_hundreds_of_rows(rows: int, decay: float) -> None:
    params = {"kernel": draw(3, 3, 2), "bias": draw(4, 2)}
    apply = lambda p, x, table: x @ p["kernel"] + p["bias"][None] + 0 * table.sum()  # noqa: E731
    x, table = 1 + draw(5, rows, 3), jnp.ones((900, 2))
    state = centered_inputs(read(apply, params, 0 * x, table), optax.sgd(0.1)).init(params)
    means = refresh_input_means(read(apply, params, x, table), state).means["kernel"]
    expected = (1 - decay) * np.asarray(x, np.float64).mean(0)[:, None]  # one mean for all units
    np.testing.assert_allclose(means, expected, rtol=1e-5)
