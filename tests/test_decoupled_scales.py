"""Decoupled scales: the first step of a layer is that of batch normalization."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from jaxnorm import centered_inputs, normalizer_free, read, refresh_input_means
from jaxnorm._decoupled_scales import decoupled_scales, measured_slopes
from jaxnorm._input_means import pairs_of
from jaxnorm._trace.reading import Reading
from tests.devices import mesh
from tests.draws import draw
from tests.trees import QUICK, assert_close, quick_jit

X = 0.7 + draw(0, 24, 5, 5, 4)
LABELS = jnp.arange(24) % 5
#: Layers before a head: groups of the convolution, or None for a dense layer.
LAYERS = {"conv": 1, "depthwise": 4, "dense": None}


@pytest.fixture(autouse=True)
def _promotion() -> Iterator[None]:
    """Optax's own counters want the standard rules."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def product(name: str, w: Any, x: Any) -> Any:
    if LAYERS[name] is None:
        return x @ w
    return jax.lax.conv_general_dilated(
        x,
        w,
        (1, 1),
        "SAME",
        feature_group_count=LAYERS[name],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def started(name: str) -> Any:
    """Parameters whose hidden units have mean 0 and variance 1."""
    w = draw(1, *{"conv": (3, 3, 4, 6), "depthwise": (3, 3, 1, 8), "dense": (4, 6)}[name])
    z = product(name, w, X)
    w = w / z.std((0, 1, 2))
    head = {"w": draw(2, w.shape[-1], 5), "b": jnp.zeros(5)}
    return {"w": w, "b": -product(name, w, X).mean((0, 1, 2)), "head": head}


def logits(head: Any, z: Any) -> Any:
    return jax.nn.softplus(z).mean((1, 2)) @ head["w"] + head["b"].reshape(1, -1)


def loss(head: Any, z: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits(head, z), LABELS).mean()


@pytest.mark.kept("dense")
@pytest.mark.parametrize("name", LAYERS)
def test_the_first_step_is_that_of_batch_normalization(name: str) -> None:
    """Pre-activations move as if the layer had weights of norm 1 and batch normalization."""
    params = started(name)
    plain = lambda p: product(name, p["w"], X) + p["b"].reshape(1, 1, 1, -1)  # noqa: E731
    apply = lambda p, x: logits(  # noqa: E731
        p["head"], product(name, p["w"], x) + p["b"].reshape(1, 1, 1, -1)
    )
    tx = decoupled_scales(read(apply, params, X), optax.sgd(1.0))
    tx = centered_inputs(read(apply, params, X), tx)

    @quick_jit
    def moved(params: Any, state: Any) -> Any:
        gradient = jax.grad(lambda p: loss(p["head"], plain(p)))(params)
        step, _ = tx.update(gradient, state, params)
        return jax.jvp(plain, (params,), (step,))[1]

    def normalized(v: Any, scale: Any, bias: Any) -> Any:
        z = product(name, v, X)
        return scale * (z - z.mean((0, 1, 2))) / z.std((0, 1, 2)) + bias

    @quick_jit
    def expected(params: Any) -> Any:
        norm = jnp.sqrt((params["w"] ** 2).sum(range(params["w"].ndim - 1)))
        ones = jnp.ones_like(norm)
        point = (params["w"] / norm, ones, 0 * ones)
        by_parts = jax.grad(lambda *p: loss(params["head"], normalized(*p)), (0, 1, 2))(*point)
        return jax.jvp(normalized, point, tuple(-g for g in by_parts))[1]

    wanted = np.asarray(expected(params))
    made = moved(params, tx.init(params))
    np.testing.assert_allclose(made, wanted, atol=2e-5 * float(np.abs(wanted).max()))


def dense(p: Any, x: Any) -> Any:
    h = jax.nn.relu(x @ p["w"] + p["b"].reshape(1, -1))
    return h @ p["head"]["w"] + p["head"]["b"].reshape(1, -1)


ROWS = draw(3, 32, 4) + 1
PARAMS = {
    "w": draw(4, 4, 6),
    "b": draw(5, 6),
    "head": {"w": draw(6, 6, 3), "b": jnp.zeros(3)},
}


def test_decay_shrinks_the_weights_themselves() -> None:
    tx = decoupled_scales(read(dense, PARAMS, ROWS), optax.add_decayed_weights(0.1))
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    step, _ = tx.update(zeros, tx.init(PARAMS), PARAMS)
    assert_close(step["w"], 0.1 * PARAMS["w"])


def slopes(apply: Any, params: Any, x: Any, axis_name: str | None = None) -> Any:
    """S of all kernels, by path."""
    net = Reading(apply, params, (x,))
    pairs = pairs_of(net, None)
    return measured_slopes(net.running(pairs), pairs, axis_name)


def assert_covariance(found: Any, x: Any, w: Any) -> None:
    """S is the covariance of the inputs x with x w."""
    x, w = (np.asarray(each, np.float64) for each in (x, w))
    z = x @ w
    expected = (x - x.mean(0)).T @ (z - z.mean(0)) / len(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_slopes_are_covariances_with_the_inputs() -> None:
    assert_covariance(slopes(dense, PARAMS, ROWS)[("w",)], ROWS, PARAMS["w"])


def test_a_scan_and_a_loop_have_equal_slopes() -> None:
    """The layers of a stack have the slopes of the layers of a list."""
    layers = [{"w": draw(n, 4, 4), "b": draw(n + 1, 4)} for n in (1, 3, 5)]
    stack = jax.tree.map(lambda *each: jnp.stack(each), *layers)

    def block(x: Any, p: Any) -> Any:
        return jax.nn.relu(x @ p["w"] + p["b"].reshape(1, -1))

    def loop(params: Any, x: Any) -> Any:
        for p in params:
            x = block(x, p)
        return x

    def scan(params: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, p: (block(x, p), None), x, params)[0]

    one, other = slopes(loop, layers, ROWS), slopes(scan, stack, ROWS)
    for n in range(3):
        np.testing.assert_allclose(other[("w",)][n], one[(str(n), "w")], rtol=1e-5, atol=1e-6)


def test_devices_average_their_slopes() -> None:
    whole = slopes(dense, PARAMS, ROWS)
    split = jax.shard_map(
        lambda x: slopes(dense, PARAMS, x, "data"),
        mesh=mesh(2),
        in_specs=P("data"),
        out_specs=P(),
        check_vma=False,
    )
    assert_close(jax.jit(split)(ROWS), whole)


def test_units_without_weights_or_variance_train_on() -> None:
    params = PARAMS | {"w": PARAMS["w"].at[:, 0].set(0.0)}
    constant = jnp.ones((8, 4))  # No unit has a variance.
    for x in (ROWS, constant):
        tx = decoupled_scales(read(dense, params, x), optax.sgd(0.1))
        gradient = jax.grad(lambda p: (dense(p, ROWS) ** 2).sum())(params)
        step, _ = tx.update(gradient, tx.init(params), params)
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(step))


def test_a_refresh_carries_momentum_over_in_the_coordinates_of_the_weights() -> None:
    """The trace of g_v moves by the map of (C_new - C_old) m_b, whose S are the old ones."""
    tx = centered_inputs(
        read(dense, PARAMS, ROWS), decoupled_scales(read(dense, PARAMS, ROWS), optax.trace(0.9))
    )
    gradient = jax.grad(lambda p: (dense(p, ROWS) ** 2).mean())(PARAMS)
    _, state = tx.update(gradient, tx.init(PARAMS), PARAMS)
    new = refresh_input_means(read(dense, PARAMS, 2 * ROWS - 1), state, decay=0.0)
    old, w = state.inner_state, np.asarray(PARAMS["w"], np.float64)
    change = np.asarray(new.means["w"] - state.means["w"]) * np.asarray(gradient["b"])
    slope, size = np.asarray(old.slopes["w"]), np.asarray(old.sizes["w"])
    shear = w / (w**2).sum(0) - slope / (w * slope).sum(0)
    expected = old.inner_state.trace["w"] - size * (change + (w * change).sum(0) * shear)
    np.testing.assert_allclose(
        new.inner_state.inner_state.trace["w"], expected, rtol=2e-4, atol=1e-5
    )
    assert bool(jnp.abs(new.inner_state.slopes["w"] - old.slopes["w"]).max() > 0.1)


def test_the_call_keeps_zero_sums_and_refreshes_under_jit() -> None:
    raw, tx = normalizer_free(dense, PARAMS, optax.adamw(0.01), ROWS, decoupled=True)

    @jax.jit
    def step(raw: Any, state: Any) -> Any:
        state = refresh_input_means(read(dense, raw, ROWS), state)
        gradient = jax.grad(lambda p: (dense(p, ROWS) ** 2).mean())(raw)
        updates, state = tx.update(gradient, state, raw)
        return optax.apply_updates(raw, updates), state

    state = tx.init(raw)
    for _ in range(3):
        raw, state = step(raw, state)
    np.testing.assert_allclose(raw["w"].sum(0), 0, atol=1e-5)
    assert bool(jnp.isfinite(dense(raw, ROWS)).all())


def test_the_wrapped_optimizer_needs_the_parameters() -> None:
    tx = decoupled_scales(read(dense, PARAMS, ROWS), optax.sgd(0.1))
    with pytest.raises(
        ValueError, match=r"decoupled_scales got no params.*update\(gradients, state, params\)"
    ):
        tx.update(PARAMS, tx.init(PARAMS))


def refreshed(apply: Any, params: Any, x: Any, decoupled: bool) -> Any:
    """State of an optimizer that was made on x, with the means and slopes of 2 x."""
    inner = (
        decoupled_scales(read(dense, params, x), optax.sgd(0.1)) if decoupled else optax.sgd(0.1)
    )
    state = centered_inputs(read(dense, params, x), inner).init(params)
    return refresh_input_means(read(apply, params, 2 * x), state, decay=0.0)


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_one_trace_gives_means_and_slopes(dtype: Any, decoupled: bool) -> None:
    """A refresh calls the model once, whatever the type of its kernels."""
    calls = []

    def counted(params: Any, x: Any) -> Any:
        calls.append(None)
        return dense(params, x)

    params, x = jax.tree.map(lambda x: x.astype(dtype), (PARAMS, ROWS))
    jax.eval_shape(lambda: refreshed(counted, params, x, decoupled))
    assert len(calls) == 1


def test_slopes_of_narrow_kernels_are_measured_in_float32() -> None:
    params, x = jax.tree.map(lambda x: x.astype(jnp.bfloat16), (PARAMS, ROWS))
    slopes_of = lambda p, x: refreshed(dense, p, x, True).inner_state.slopes["w"]  # noqa: E731
    found = jax.jit(slopes_of, compiler_options=QUICK)(params, x)
    assert_covariance(found, 2 * x, params["w"])
