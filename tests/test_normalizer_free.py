"""The one call: roles by structure, a start fitted per unit, and an optimizer that keeps it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import describe_roles, effective, moving_average_normalization, normalizer_free
from jaxnorm._roles import roles_of
from jaxnorm._trace.reading import Reading
from tests.draws import draw
from tests.trees import QUICK, assert_close, quick_jit

X = draw(0, 32, 6, 6, 3) + 1


@pytest.fixture(autouse=True)
def _promotion() -> Any:
    """Optax's own counters want the standard rules."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def layer(seed: int, *shape: int) -> dict[str, jax.Array]:
    return {"kernel": draw(seed, *shape), "bias": draw(seed + 50, shape[-1])}


def conv(p: Any, x: Any, groups: int = 1) -> Any:
    y = jax.lax.conv_general_dilated(
        x,
        p["kernel"],
        (1, 1),
        "SAME",
        feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return y + p["bias"].reshape(1, 1, 1, -1)


def dense(p: Any, x: Any) -> Any:
    return x @ p["kernel"] + p["bias"].reshape((1,) * (x.ndim - 1) + (-1,))


#: An inverted residual block between a stem and a head.
PARAMS = {
    "stem": layer(1, 3, 3, 3, 4),
    "expand": layer(2, 1, 1, 4, 8),
    "depthwise": layer(3, 3, 3, 1, 8),
    "project": layer(4, 1, 1, 8, 4),
    "head": layer(5, 4, 5),
}


def network(params: Any, x: Any) -> Any:
    return dense(params["head"], stream(params, x).mean((1, 2)))


def stream(params: Any, x: Any) -> Any:
    x = jax.nn.relu(conv(params["stem"], x))
    for _ in range(1):
        x = x + branch(params, x)
    return x


def branch(params: Any, x: Any) -> Any:
    y = jax.nn.relu6(conv(params["expand"], x))
    return conv(params["project"], jax.nn.relu6(conv(params["depthwise"], y, groups=8)))


@pytest.fixture(scope="module")
def result() -> Any:
    with jax.numpy_dtype_promotion("standard"):
        return normalizer_free(network, PARAMS, optax.adamw(0.01), X)


def test_hidden_units_start_with_mean_zero_and_variance_one(result: Any) -> None:
    raw, _ = result
    y = conv(raw["stem"], X)
    expand = conv(raw["expand"], jax.nn.relu(y))
    depthwise = conv(raw["depthwise"], jax.nn.relu6(expand), groups=8)
    project = conv(raw["project"], jax.nn.relu6(depthwise))
    for output in (y, expand, depthwise, project):
        values = np.asarray(output, np.float64)
        np.testing.assert_allclose(values.mean((0, 1, 2)), 0, atol=1e-5)
        np.testing.assert_allclose(values.var((0, 1, 2)), 1, atol=1e-4)
    assert_close(raw["head"], PARAMS["head"])


def test_zero_sums_hold_at_the_start_and_after_steps(result: Any) -> None:
    """Under Adam with decay; depthwise kernels and the head are free."""
    raw, tx = result
    labels = jnp.arange(32) % 5

    def loss(params: Any) -> Any:
        logits = network(params, X)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    step = jax.jit(lambda p, s: tx.update(jax.grad(loss)(p), s, p), compiler_options=QUICK)
    state, params = tx.init(raw), raw
    for _ in range(5):
        updates, state = step(params, state)
        params = optax.apply_updates(params, updates)
    assert loss(params) < loss(raw)
    for name in ("stem", "expand", "project"):
        sums = np.asarray(params[name]["kernel"], np.float64).sum((0, 1, 2))
        np.testing.assert_allclose(sums, 0, atol=1e-5)
        assert not np.allclose(params[name]["kernel"], raw[name]["kernel"])
    assert np.abs(np.asarray(params["depthwise"]["kernel"]).sum((0, 1, 2))).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2, 5])
def test_branches_start_with_variance_one_over_their_number(blocks: int) -> None:
    params = {
        "stem": layer(1, 6, 4),
        "blocks": [(layer(n, 4, 8), layer(n + 9, 8, 4)) for n in range(2, 2 + blocks)],
        "head": layer(30, 4, 3),
    }

    def apply(p: Any, x: Any) -> Any:
        x = dense(p["stem"], x)
        for one, two in p["blocks"]:
            x = x + dense(two, jax.nn.relu(dense(one, x)))
        return dense(p["head"], x)

    x = draw(40, 64, 6)
    raw, _ = normalizer_free(apply, params, optax.sgd(0.1), x)
    x = dense(raw["stem"], x)
    for one, two in raw["blocks"]:
        y = dense(two, jax.nn.relu(dense(one, x)))
        np.testing.assert_allclose(y.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(y.var(0), 1 / blocks, rtol=1e-3)
        x = x + y


def named(paths: Any) -> set[str]:
    return {str(path).rpartition("/")[0] for path in paths}


def mlp(p: Any, x: Any) -> Any:
    return jax.nn.relu(dense(p["a"], x))


THREE = {name: layer(n, 4, 4) for n, name in enumerate("abc")}
#: Networks of three layers, and the layers that make their results.
HEADS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "a chain": (lambda p, x: dense(p["c"], jnp.tanh(dense(p["b"], mlp(p, x)))), {"c"}),
    "a pooling and a relu after it": (
        lambda p, x: jax.nn.relu(dense(p["c"], dense(p["b"], mlp(p, x)))).mean(0),
        {"c"},
    ),
    "a softmax and a cap after it": (
        lambda p, x: jnp.tanh(jax.nn.softmax(dense(p["c"], dense(p["b"], mlp(p, x))))),
        {"c"},
    ),
    "a linear bottleneck before it": (
        lambda p, x: dense(p["c"], dense(p["b"], mlp(p, x))),
        {"c"},
    ),
    "two results": (lambda p, x: (dense(p["b"], mlp(p, x)), dense(p["c"], mlp(p, x))), {"b", "c"}),
    "features beside the result": (
        lambda p, x: (dense(p["b"], mlp(p, x)), dense(p["c"], dense(p["b"], mlp(p, x)))),
        {"c"},
    ),
    "a linear model beside it": (
        lambda p, x: dense(p["a"], x) + dense(p["c"], jnp.tanh(dense(p["b"], x))),
        {"a", "c"},
    ),
    "a residual sum at the end": (
        lambda p, x: (y := mlp(p, x)) + dense(p["c"], jnp.tanh(dense(p["b"], y))),
        set(),
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_are_the_last_kernels_of_results(name: str) -> None:
    """All others have zero sums, except for those that read the inputs."""
    apply, expected = HEADS[name]
    first = {"a", "b"} if name == "a linear model beside it" else {"a"}
    roles = roles_of(Reading(apply, THREE, (jnp.ones((5, 4)),)))
    assert named(roles.heads) == expected
    assert named(roles.zero_sums) == {"a", "b", "c"} - expected - first


def test_heads_can_be_named() -> None:
    apply, _ = HEADS["a chain"]
    roles = roles_of(Reading(apply, THREE, (jnp.ones((5, 4)),)), ["b/kernel"])
    assert named(roles.heads) == {"b"}


def convolved(stride: int = 1, **options: Any) -> Callable[..., Any]:
    def apply(p: Any, x: Any) -> Any:
        axes, steps, pads = ("NHWC", "HWIO", "NHWC"), (stride, stride), ((0, 0), (0, 0))
        x = jax.lax.conv_general_dilated(x, p["a"], steps, pads, dimension_numbers=axes, **options)
        return jax.nn.relu(x).mean((1, 2)) @ p["head"]

    return apply


def of_patches(p: Any, x: Any) -> Any:
    x = x.reshape(-1, 3, 2, 3, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 3, 3, 12)
    return jax.nn.relu(x @ p["a"].reshape(12, 4)).mean((1, 2)) @ p["head"]


#: Networks, the size of their first kernel, and whether its windows overlap.
WINDOWS: dict[str, tuple[Callable[..., Any], int, bool]] = {
    "each pixel": (convolved(), 1, False),
    "neighbors": (convolved(), 3, True),
    "neighbors, with a stride": (convolved(2), 3, True),
    "neighbors, with gaps": (convolved(rhs_dilation=(2, 2)), 2, True),
    "patches": (convolved(2), 2, False),
    "patches, cut out": (of_patches, 2, False),
    "each pixel, enlarged": (convolved(lhs_dilation=(2, 2)), 2, False),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_kernels_that_read_the_inputs_have_zero_sums_if_their_windows_overlap(name: str) -> None:
    apply, size, overlaps = WINDOWS[name]
    params = {"a": draw(1, size, size, 3, 4), "head": draw(2, 4, 2)}
    assert ("a" in map(str, roles_of(Reading(apply, params, (X,))).zero_sums)) == overlaps


@pytest.mark.parametrize("call", [normalizer_free, moving_average_normalization])
def test_a_class_that_the_sum_of_the_features_tells_is_learned(call: Callable[..., Any]) -> None:
    """The class of the set twonorm. With zero sums in the first layer it is hidden from all."""
    x = draw(3, 512, 8)
    y = (x.sum(1) > 0).astype(jnp.int32)
    params = {"a": layer(4, 8, 16), "b": layer(5, 16, 16), "c": layer(6, 16, 2)}
    apply, _ = HEADS["a chain"]
    *in_loss, raw, tx = call(apply, params, optax.sgd(0.1, momentum=0.9), x)
    model = in_loss[0] if in_loss else apply

    def loss(raw: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model(raw, x), y).mean()

    def step(_: Any, carry: Any) -> Any:
        updates, state = tx.update(jax.grad(loss)(carry[0]), carry[1], carry[0])
        return optax.apply_updates(carry[0], updates), state

    raw, _ = jax.jit(partial(jax.lax.fori_loop, 0, 50, step))((raw, tx.init(raw)))
    assert (apply(effective(raw), x).argmax(1) == y).mean() > 0.95


def test_units_of_one_feature_get_a_start_and_no_zero_sum() -> None:
    """Depthwise kernels, kernels on a grey image, and a dense layer on one number."""
    params = {"grey": layer(1, 3, 3, 1, 4), "wide": layer(2, 1, 3), "head": layer(3, 7, 2)}

    def apply(p: Any, image: Any, number: Any) -> Any:
        features = jax.nn.relu(conv(p["grey"], image)).mean((1, 2))
        other = jax.nn.relu(dense(p["wide"], number))
        return dense(p["head"], jnp.concatenate([features, other], 1))

    roles = roles_of(Reading(apply, params, (draw(0, 8, 5, 5, 1), draw(1, 8, 1))))
    assert named(roles.zero_sums) == set()
    assert named(roles.fitted) == {"grey", "wide"}
    raw, _ = normalizer_free(apply, params, optax.sgd(0.1), draw(0, 8, 5, 5, 1), draw(1, 8, 1))
    np.testing.assert_allclose(dense(raw["wide"], draw(1, 8, 1)).var(0), 1, rtol=1e-4)


def transposed(params: Any) -> Any:
    """Dense layers with kernels of (out, in), named as PyTorch does."""
    return {n: {"weight": p["kernel"].T, "bias": p["bias"]} for n, p in params.items()}


def test_equivalent_spellings_have_one_result() -> None:
    """Kernels as (in, out) or (out, in), einsums, a checkpoint: one start and one step."""
    x = draw(3, 16, 4) + 1
    chain, _ = HEADS["a chain"]

    def einsum(p: Any, x: Any) -> Any:
        d = lambda p, x: jnp.einsum("io,bi->bo", p["kernel"], x) + p["bias"].reshape(1, -1)  # noqa: E731
        return d(p["c"], jnp.tanh(d(p["b"], jax.nn.relu(d(p["a"], x)))))

    def torch(p: Any, x: Any) -> Any:
        return chain({n: {"kernel": q["weight"].T, "bias": q["bias"]} for n, q in p.items()}, x)

    spellings = {"einsum": einsum, "checkpoint": jax.checkpoint(chain)}
    expected = after_a_step(chain, THREE, x)
    for apply in spellings.values():
        assert_close(after_a_step(apply, THREE, x), expected)
    assert_close(after_a_step(torch, transposed(THREE), x), transposed(expected))


def after_a_step(apply: Any, params: Any, x: Any) -> Any:
    raw, tx = normalizer_free(apply, params, optax.sgd(0.1, momentum=0.9), x)
    gradient = jax.grad(lambda p: jnp.square(apply(p, x)).mean())(raw)
    return optax.apply_updates(raw, tx.update(gradient, tx.init(raw), raw)[0])


def test_each_part_can_be_left_out() -> None:
    x = draw(3, 16, 4) + 1
    apply, _ = HEADS["a chain"]
    inner = optax.sgd(0.1)
    parts = ("zero_sums", "fitted", "quiet", "centered")
    raw, tx = normalizer_free(apply, THREE, inner, x, **dict.fromkeys(parts, False))
    assert_close(raw, THREE)
    assert (*tx,) == (*inner,)
    assert tx.applied == ()
    for part in parts:
        switches = {"zero_sums": True, "quiet": True} | {part: False}
        raw, tx = normalizer_free(apply, THREE, inner, x, **switches)
        hidden = dense(raw["a"], x)
        sums = np.asarray(raw["b"]["kernel"]).sum(0)
        assert np.allclose(sums, 0, atol=1e-5) == (part != "zero_sums")
        assert np.allclose(hidden.var(0), 1, atol=1e-3) == (part != "fitted")
        assert hasattr(tx.init(raw), "means") == (part != "centered")


def test_the_table_says_what_is_done() -> None:
    lines = describe_roles(network, PARAMS, X).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert rows["depthwise/kernel"] == ["hidden", "no", "1", "yes"]
    assert rows["head/kernel"] == ["head", "no", "random", "yes"]
    assert rows["project/kernel"] == ["hidden", "yes", "1", "yes"]


def test_the_table_is_in_the_order_of_execution() -> None:
    names = [f"layer{index}" for index in range(12)]
    params = dict.fromkeys(names, THREE["a"])

    def chain(p: Any, x: Any) -> Any:
        for name in reversed(names):
            x = jax.nn.relu(dense(p[name], x))
        return x

    lines = describe_roles(chain, params, jnp.ones((4, 4))).splitlines()[1:]
    assert [line.split("/")[0] for line in lines] == names[::-1]


def test_layers_that_were_written_for_batch_normalization_are_warned_of() -> None:
    """Layers without any bias in front of the classifier."""
    bare = lambda p, x: dense(p["head"], jax.nn.relu(x @ p["a"]["kernel"]))  # noqa: E731
    params = {"a": {"kernel": THREE["a"]["kernel"]}, "head": THREE["b"]}
    with pytest.warns(UserWarning, match=r"a/kernel.*no unit can start.*use_bias=True"):
        normalizer_free(bare, params, optax.sgd(0.1), draw(1, 8, 4))


def test_errors_teach() -> None:
    single = lambda p, x: dense(p["a"], x)  # noqa: E731
    x = jnp.ones((8, 4))
    with pytest.raises(ValueError, match="no hidden layer"):
        normalizer_free(single, {"a": THREE["a"]}, optax.sgd(0.1), x)
    with pytest.raises(ValueError, match=r"'nowhere'.*matches no kernel.*a/kernel"):
        normalizer_free(HEADS["a chain"][0], THREE, optax.sgd(0.1), x, heads=["nowhere"])
    with pytest.raises(ValueError, match="NaN"):
        normalizer_free(HEADS["a chain"][0], THREE, optax.sgd(0.1), x * jnp.nan)


def excited(p: Any, x: Any, y: Any, gate: Callable[..., Any] = jax.nn.sigmoid) -> Any:
    """Branch's values times a gate per sample and channel."""
    squeezed = jax.nn.relu(dense(p["down"], y.mean((1, 2))))
    return x * gate(dense(p["up"], squeezed))[:, None, None]


GATED = {
    "stem": layer(1, 3, 3, 3, 4),
    "end": layer(2, 3, 3, 4, 4),
    "down": {"kernel": 0.1 * draw(3, 4, 2), "bias": jnp.zeros(2)},
    "up": {"kernel": 0.1 * draw(4, 2, 4), "bias": jnp.zeros(4)},
    "head": layer(5, 4, 5),
}
GATES: dict[str, Callable[..., Any]] = {
    "at the end of a branch": lambda p, x: x + excited(p, y := conv(p["end"], jnp.tanh(x)), y),
    "from the stream": lambda p, x: x + excited(p, conv(p["end"], jnp.tanh(x)), x),
    "of both signs": lambda p, x: x + excited(p, conv(p["end"], jnp.tanh(x)), x, jnp.tanh),
}


@pytest.mark.parametrize("name", GATES)
def test_gated_branches_start_as_loud_as_others(name: str) -> None:
    """The size of the gate is made up for, and its kernels keep their start and their sums."""

    def apply(p: Any, x: Any) -> Any:
        return dense(p["head"], GATES[name](p, conv(p["stem"], x)).mean((1, 2)))

    roles = roles_of(Reading(apply, GATED, (X,)))
    assert named(roles.inside_gates) == {"down", "up"}
    assert named(roles.zero_sums) == {"stem", "end"}
    raw, _ = normalizer_free(apply, GATED, optax.sgd(0.1), X)
    assert_close((raw["down"], raw["up"]), (GATED["down"], GATED["up"]))
    x = conv(raw["stem"], X)
    branch = GATES[name](raw, x) - x
    assert 0.8 < float(branch.var()) < 1.25
    assert abs(float(branch.mean())) < 0.1


def test_a_gate_that_is_always_closed_leaves_the_start_finite() -> None:
    closed = lambda z: jax.nn.relu(z - 9)  # noqa: E731

    def apply(p: Any, x: Any) -> Any:
        x = conv(p["stem"], x)
        x = x + excited(p, conv(p["end"], jnp.tanh(x)), x, closed)
        return dense(p["head"], x.mean((1, 2)))

    raw, _ = normalizer_free(apply, GATED, optax.sgd(0.1), X)
    output = conv(raw["end"], jnp.tanh(conv(raw["stem"], X)))
    np.testing.assert_allclose(output.var((0, 1, 2)), 1, rtol=1e-3)


@pytest.mark.slow
def test_layers_behind_gated_branches_are_fitted_to_what_these_leave() -> None:
    """Three blocks of squeeze-and-excitation: the first kernel of each has mean 0, variance 1."""
    keys = ("start", "end", "down", "up")
    blocks = [
        {
            **{key: GATED[key] for key in keys[2:]},
            "start": layer(i, 3, 3, 4, 4),
            "end": layer(9 * i, 3, 3, 4, 4),
        }
        for i in (1, 2, 3)
    ]
    params = {"stem": GATED["stem"], "blocks": blocks, "head": GATED["head"]}

    def run(p: Any, x: Any) -> tuple[Any, list[Any]]:
        x, starts = conv(p["stem"], x), []
        for block in p["blocks"]:
            starts.append(conv(block["start"], jnp.tanh(x)))
            y = conv(block["end"], jnp.tanh(starts[-1]))
            x = x + excited(block, y, y)
        return dense(p["head"], x.mean((1, 2))), starts

    raw, _ = normalizer_free(lambda p, x: run(p, x)[0], params, optax.sgd(0.1), X)
    for start in run(raw, X)[1]:
        np.testing.assert_allclose(start.mean((0, 1, 2)), 0, atol=1e-4)
        np.testing.assert_allclose(start.var((0, 1, 2)), 1, rtol=1e-3)


def unpooled(p: Any, x: Any, product: bool) -> Any:
    """Unpooling to the places of the maxima, by a product with their mask or by a choice."""
    y = jax.nn.relu(conv(p["stem"], x))
    rows, height, width, units = y.shape
    windows = y.reshape(rows, height // 2, 2, width // 2, 2, units)
    largest = windows.max((2, 4), keepdims=True)
    low = jax.nn.relu(conv(p["end"], largest[:, :, 0, :, 0]))[:, :, None, :, None]
    mask = windows == largest
    high = low * mask.astype(x.dtype) if product else jnp.where(mask, low, 0)
    return dense(p["head"], conv(p["last"], high.reshape(y.shape)).mean((1, 2)))


def test_a_mask_is_no_gate() -> None:
    """The places of maxima have no derivative: a product with them is a choice."""
    params = {key: GATED[key] for key in ("stem", "end", "head")} | {"last": layer(6, 3, 3, 4, 4)}
    x = X[:, :4, :4]
    one, other = (
        roles_of(Reading(partial(unpooled, product=y), params, (x,))) for y in (True, False)
    )
    assert one == other
    assert not one.inside_gates
    assert named(one.zero_sums) == {"stem", "end", "last"}


def test_a_gate_inside_a_branch_is_left_to_the_fit() -> None:
    """A squeeze-and-excitation before the last kernel: the kernel after it is fitted to it."""
    params = GATED | {"last": layer(6, 1, 1, 4, 4)}

    def branch(p: Any, x: Any) -> Any:
        y = jax.nn.silu(conv(p["end"], x))
        return conv(p["last"], excited(p, y, y))

    def apply(p: Any, x: Any) -> Any:
        x = conv(p["stem"], x)
        return dense(p["head"], (x + branch(p, x)).mean((1, 2)))

    raw, _ = normalizer_free(apply, params, optax.sgd(0.1), X)
    assert_close((raw["down"], raw["up"]), (GATED["down"], GATED["up"]))
    output = branch(raw, conv(raw["stem"], X))
    np.testing.assert_allclose(output.var((0, 1, 2)), 1, rtol=1e-3)


def modulated(p: Any, x: Any) -> Any:
    """Block that starts as the identity: kernels of zeros make its shift, scale and gate."""
    condition = jax.nn.silu(dense(p["condition"], x.mean((1, 2))))
    shift, scale, gate = jnp.split(dense(p["modulation"], condition)[:, None, None], 3, axis=-1)
    x = conv(p["stem"], x)
    branch = conv(p["end"], jax.nn.gelu(conv(p["start"], x * (1 + scale) + shift)))
    return dense(p["head"], (x + gate * branch).mean((1, 2)))


@pytest.mark.slow
def test_kernels_of_zeros_stay_zero() -> None:
    """The modulation of an adaptive block starts at zero, and its units have no variance to fit."""
    params = {
        "condition": layer(1, 3, 6),
        "modulation": {"kernel": jnp.zeros((6, 12)), "bias": jnp.zeros(12)},
        "stem": layer(2, 3, 3, 3, 4),
        "start": layer(3, 1, 1, 4, 8),
        "end": layer(4, 1, 1, 8, 4),
        "head": layer(5, 4, 5),
    }
    raw, tx = normalizer_free(modulated, params, optax.sgd(0.1), X)
    assert_close(raw["modulation"], params["modulation"])
    gradients = quick_jit(jax.grad(lambda p: (modulated(p, X) ** 2).mean()))(raw)
    updates, _ = quick_jit(tx.update)(gradients, tx.init(raw), raw)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(updates))
    assert np.abs(updates["modulation"]["kernel"]).max() > 0
