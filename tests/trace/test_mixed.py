"""Kernels that inputs mix before the product, and layers whose inputs are constants."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxnorm as jn
from tests.trace.forms import draw

X, TOKENS = draw(6, 5), draw(2, 3, 5)
MOE = {"route": draw(5, 4), "experts": draw(4, 5, 3)}
STACK = {"route": draw(2, 5, 4), "experts": draw(2, 4, 5, 5)}


def gate(p: Any, x: Any) -> Any:
    return jax.nn.softmax(x @ p["route"])


def mixed(p: Any, x: Any) -> Any:
    """A kernel of each row, as in CondConv."""
    return jnp.einsum("be,eio->bio", gate(p, x), p["experts"])


def multiplied(x: Any, kernels: Any) -> Any:
    return jnp.einsum("bi,bio->bo", x, kernels)


def first(p: Any, x: Any) -> Any:
    """The kernel of the most likely expert."""
    return jnp.einsum("be,eio->bio", jax.nn.one_hot(gate(p, x).argmax(-1), 4), p["experts"])


def in_turns(p: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, p: (multiplied(x, mixed(p, x)), None), x, p)[0]


def convolved(p: Any, x: Any) -> Any:
    conv = lambda x, w: jax.lax.conv(x[None, :, None], w.T[..., None], (1,), "SAME")[0, :, 0]  # noqa: E731
    return jax.vmap(conv)(x, mixed(p, x))


#: Models whose experts have two possible fan-ins.
MIXED: dict[str, tuple[Any, Any, Any]] = {
    "weights of experts": (lambda p, x: multiplied(x, mixed(p, x)), MOE, X),
    "one expert per row": (lambda p, x: multiplied(x, first(p, x)), MOE, X),
    "a vmap over rows": (
        jax.vmap(lambda p, x: x @ jnp.tensordot(gate(p, x), p["experts"], 1), (None, 0)),
        MOE,
        X,
    ),
    "scaled": (lambda p, x: multiplied(x, 0.5 * mixed(p, x).astype(jnp.float16)), MOE, X),
    "read twice": (
        lambda p, x: (lambda kernels: multiplied(x, kernels) + kernels.sum(1))(mixed(p, x)),
        MOE,
        X,
    ),
    "convolutions": (convolved, MOE, X),
    "in a scan": (in_turns, STACK, X),
    "bilinear, in steps": (
        lambda p, x, y: jnp.einsum("bjo,bj->bo", jnp.einsum("bi,ijo->bjo", x, p["experts"]), y),
        {"experts": draw(5, 4, 3)},
        (X, draw(6, 4)),
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_kernels_are_refused(name: str) -> None:
    apply, params, x = MIXED[name]
    inputs = x if isinstance(x, tuple) else (x,)
    apply_wide = lambda p, *x: apply(p, *x).astype(jnp.float32)  # noqa: E731
    with (
        jax.numpy_dtype_promotion("standard"),
        pytest.raises(ValueError, match="'experts' is mixed"),
    ):
        jn.traced_layout(jn.read(apply_wide, params, *inputs))


def test_initializers_refuse_mixed_kernels_too() -> None:
    apply, params, x = MIXED["weights of experts"]
    layout = jn.layout_from_rules([("experts", -2)])
    with pytest.raises(ValueError, match="'experts' is mixed"):
        jn.variance_preserving_init(jn.read(apply, params, x), layout=layout)


def multi_query(p: Any, x: Any) -> Any:
    queries = jnp.einsum("bti,ihd->bthd", x, p["q"]) / 2
    return jnp.einsum("bthd,bsd->bhts", queries, x @ p["k"])


def generated(p: Any, x: Any) -> Any:
    """PointNet's transformation of its inputs, which a layer computes."""
    return jnp.einsum("btn,bnm->btm", x, (x.mean(1) @ p["k"]).reshape(2, 5, 5))


#: Models with products of two layers' outputs, of which each layer has one fan-in.
UNMIXED: dict[str, tuple[Any, Any, Any, dict[str, tuple[int, ...]]]] = {
    "queries of common keys": (
        multi_query,
        {"q": draw(5, 2, 4), "k": draw(5, 4)},
        TOKENS,
        {"q": (-3,), "k": (-2,)},
    ),
    "outputs of experts": (
        lambda p, x: jnp.einsum(
            "be,beo->bo", gate(p, x), jnp.einsum("bi,eio->beo", x, p["experts"])
        ),
        MOE,
        X,
        {"route": (-2,), "experts": (-2,)},
    ),
    "outputs of experts that a loop chooses": (
        lambda p, x: jnp.einsum(
            "be,beo->bo",
            gate(p, jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, p["deep"])[0]),
            jnp.einsum("bi,eio->beo", x, p["experts"]),
        ),
        MOE | {"deep": draw(2, 5, 5)},
        X,
        {"route": (-2,), "experts": (-2,), "deep": (-2,)},
    ),
    "generated weights": (generated, {"k": draw(5, 25)}, TOKENS, {"k": (-2,)}),
}


@pytest.mark.parametrize("name", UNMIXED)
def test_layers_whose_outputs_are_multiplied_keep_their_fan_in(name: str) -> None:
    apply, params, x, axes = UNMIXED[name]
    assert jn.traced_layout(jn.read(apply, params, x))(params) == axes


POSITIONS = draw(3, 6)
RELATIVE = {name: draw(5, 2, 4) for name in "qk"} | {"r": draw(6, 2, 4), "u": draw(2, 4)}


def relative(p: Any, x: Any) -> Any:
    """Scores of a Transformer-XL."""
    q, k = (jnp.einsum("bti,ihd->bthd", x, p[name]) for name in "qk")
    r = jnp.einsum("si,ihd->shd", POSITIONS, p["r"])
    return jnp.einsum("bthd,bshd->bhts", q, k) + jnp.einsum(
        "bthd,shd->bhts", q + p["u"][None, None], r
    )


INDICES = jnp.arange(9).reshape(3, 3) % 3
BIASED = {"q": draw(5, 8), "a": draw(6, 7), "b": draw(7), "c": draw(7, 2)}


def biased(p: Any, x: Any) -> Any:
    """A bias of positions that a small network computes, as in SwinV2."""
    table = jax.nn.relu(POSITIONS @ p["a"] + p["b"][None]) @ p["c"]
    return (x @ p["q"]).mean(-1)[:, None, None] + jax.nn.sigmoid(table[INDICES]).sum(-1)[
        None, :, :, None
    ]


def test_layers_of_constants_have_the_fan_in_that_meets_the_constants() -> None:
    axes = {"q": (-3,), "k": (-3,), "r": (-3,), "u": None}
    assert jn.traced_layout(jn.read(relative, RELATIVE, TOKENS))(RELATIVE) == axes
    axes = {"q": (-2,), "a": (-2,), "b": None, "c": (-2,)}
    assert jn.traced_layout(jn.read(biased, BIASED, TOKENS))(BIASED) == axes


@pytest.mark.parametrize("part", ["split", "slices", "indices"])
def test_positions_may_be_added_to_a_part_of_a_product(part: str) -> None:
    """Queries, keys and values of one kernel, of which the queries have places."""
    params = {"qkv": draw(5, 12), "place": draw(3, 4), "scale": draw(3, 4)}

    def apply(p: Any, x: Any) -> Any:
        y = x @ p["qkv"]
        if part == "split":
            q, k, v = jnp.split(y, 3, -1)
        elif part == "slices":
            q, k, v = (y[..., i : i + 4] for i in (0, 4, 8))
        else:
            q, k, v = (y.reshape(2, 3, 3, 4)[:, :, i] for i in range(3))
        q = q * p["scale"][None] + p["place"][None]
        return jax.nn.softmax(q @ jnp.swapaxes(k, 1, 2)) @ v

    axes = {"qkv": (-2,), "place": None, "scale": None}
    assert jn.traced_layout(jn.read(apply, params, TOKENS))(params) == axes


def test_heads_of_one_number_attend_to_constants() -> None:
    params = {"q": draw(5, 4), "k": draw(6, 4)}

    def apply(p: Any, x: Any) -> Any:
        q, k = (x @ p["q"]).reshape(2, 3, 4, 1), (POSITIONS @ p["k"]).reshape(3, 4, 1)
        return jnp.einsum("bthd,shd->bhts", q, k)

    assert jn.traced_layout(jn.read(apply, params, TOKENS))(params) == {"q": (-2,), "k": (-2,)}


def test_layers_of_constants_are_initialized() -> None:
    layout = jn.traced_layout(jn.read(biased, BIASED, TOKENS))
    params = jn.variance_preserving_init(jn.read(biased, BIASED, TOKENS), layout=layout)
    a, b, c = (np.float64(params[name]) for name in "abc")
    product = np.float64(POSITIONS) @ a
    assert product.var() == pytest.approx(1, rel=1e-5)
    assert (np.maximum(product + b, 0) @ c).var() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    "kernel",
    [
        lambda w: draw(5, 5) @ w,
        lambda w: w @ draw(4, 4),
        lambda w: jnp.tanh(draw(5, 5) @ w),
    ],
)
def test_kernels_that_constants_change_are_refused_still(kernel: Any) -> None:
    with pytest.raises(ValueError, match="'w' is changed"):
        jn.traced_layout(jn.read(lambda p, x: x @ kernel(p["w"]), {"w": draw(5, 4)}, X))
