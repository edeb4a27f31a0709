"""Traced layouts of models of other libraries, and of programs, against layouts by hand."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxnorm.nnx
from jaxnorm import (
    Scaled,
    collect_preactivations,
    exclude,
    layout_from_rules,
    read,
    reparametrize,
    sphere_projection,
    traced_layout,
)
from tests.draws import float32
from tests.tolerances import FLOAT32
from tests.trace.forms import draw
from tests.trees import by_path

KEY = jax.random.key(0)
X = float32(np.random.default_rng(0).normal(size=(2, 5, 8)))
TOKENS = jnp.array([[1, 2, 0]])

#: ``(apply, params, *inputs)``.
Model = tuple[Any, ...]


def linen(module: nn.Module, *inputs: Any, **options: Any) -> Model:
    shapes = jax.eval_shape(module.init, KEY, *inputs)["params"]
    return lambda p, *x: module.apply({"params": p}, *x, **options), shapes, *inputs


def of_nnx(make: Callable[[nnx.Rngs], nnx.Module], *inputs: Any) -> Model:
    apply, params, state = jaxnorm.nnx.functionalize(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    return lambda p, state, *x: apply(p, state, *x, train=False)[0], params, state, *inputs


def equinox(make: Any, *inputs: Any, call: Any = lambda model, x: jax.vmap(model)(x)) -> Model:
    shapes = eqx.filter_eval_shape(make)
    params, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    return lambda p, *x: call(eqx.combine(p, static), *x), params, *inputs


class Classifier(nn.Module):
    """Embedding, attention with its norms, and a head that is tied to the embedding."""

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        table = nn.Embed(7, 8, name="table")
        x = table(tokens) + self.param("positions", nn.initializers.ones, (3, 8))[None]
        x = x + nn.MultiHeadDotProductAttention(2, name="attention")(nn.LayerNorm(name="norm")(x))
        return table.attend(x)


#: Models with the fan-in axes of their kernels by path; every other leaf is free.
MODELS: dict[str, tuple[Callable[[], Model], dict[str, tuple[int, ...]]]] = {
    "a table that is a head too": (
        lambda: linen(Classifier(), TOKENS),
        {f"attention/{name}/kernel": (-3,) for name in ("query", "key", "value")}
        | {"attention/out/kernel": (-3, -2), "table/embedding": (-1,)},
    ),
    "nnx lora": (
        lambda: of_nnx(lambda r: nnx.LoRALinear(8, 6, lora_rank=2, rngs=r), X),
        {"kernel": (-2,), "lora/lora_a": (-2,), "lora/lora_b": (-2,)},
    ),
    "equinox ensemble": (
        lambda: equinox(
            lambda: eqx.filter_vmap(lambda k: eqx.nn.Conv1d(8, 4, 3, key=k))(
                jax.random.split(KEY, 3)
            ),
            jnp.ones((8, 5)),
            call=lambda model, x: eqx.filter_vmap(lambda m, x: m(x), in_axes=(0, None))(model, x),
        ),
        {"weight": (-2, -1)},
    ),
    "linen lstm, its gates side by side": (
        lambda: linen(nn.RNN(nn.OptimizedLSTMCell(3)), X),
        {f"cell/{side}{gate}/kernel": (-2,) for side in "ih" for gate in "ifgo"},
    ),
}


W, V = draw(8, 6), draw(6, 3)


def programs(apply: Any, axes: Any, *inputs: Any, **more: Any) -> Any:
    """Returns a program of the parameter ``w`` of shape (8, 6), and of further parameters."""
    params = {"w": W, **more}
    expected = axes if isinstance(axes, dict) else {"w": axes}
    return lambda: (apply, params, *(inputs or (X,))), expected


def turn(params: Any, start: Any, x: Any) -> Any:
    step = lambda state, x: (jnp.tanh(state @ params["w"][:, :6] + x[:6]), None)  # noqa: E731
    return jax.lax.scan(step, start, x)[0]


def attended(p: Any, x: Any) -> jax.Array:
    """Positions, then products of inputs alone: of scaled ones, and of those of a softmax."""
    h = x + p["position"][None]
    h = h / jnp.linalg.norm(h, axis=-1, keepdims=True) * p["scale"][None, None]
    scores = jnp.einsum("btd,bsd->bts", h, h @ p["w"] @ p["v"] @ p["u"]) + p["bias"]
    return jnp.einsum("bts,bsd->btd", jax.nn.softmax(scores * jnp.einsum("btd,bsd->bts", h, h)), h)


def looked_up(p: Any, tokens: Any, places: Any) -> jax.Array:
    """Words and positions, in products of their own: no kernels, but inputs."""
    h = p["word"][tokens] + p["place"][places]
    h = h / jnp.linalg.norm(h, axis=-1, keepdims=True)
    return jax.nn.softmax(jnp.einsum("btd,bsd->bts", h, h)) @ h @ p["w"]


def gated(p: Any, h: Any, g: Any) -> Any:
    """Einsums of two operands have one order, whatever their sizes."""
    return jnp.einsum("bted,bte->btd", jnp.einsum("btef,efd->bted", h, p["w"]), g)


#: Parts of a kernel, kernels in branches and loops, and free leaves.
PROGRAMS: dict[str, Any] = {
    "as one unit": programs(lambda p, x: jnp.tile(x[:, 0], 6) @ p["w"].reshape(48), (-2, -1)),
    "units of one weight": programs(
        lambda p, x: x[..., :1] @ p["w"].reshape(1, 6), (-3,), w=draw(1, 2, 3)
    ),
    "column by column": programs(
        lambda p, x: x.reshape(2, 40)[:, :16] @ p["w"].reshape(16, 4, order="F"),
        (-3, -2),
        w=draw(4, 4, 4),
    ),
    "column by column, turned": programs(
        lambda p, x: x.reshape(2, 40)[:, :16] @ p["w"].reshape(4, 16, order="F").T,
        (-2, -1),
        w=draw(4, 4, 4),
    ),
    "a part of the units": programs(lambda p, x: x @ p["w"][:, 2:4], (-2,)),
    "in two parts": programs(lambda p, x: [x @ w for w in jnp.split(p["w"], 2, axis=1)], (-2,)),
    "both branches": programs(
        lambda p, x: jax.lax.cond(x.sum() > 0, lambda w: x @ w, lambda w: -x @ w, p["w"]), (-2,)
    ),
    "a loop's condition": programs(
        lambda p, x: jax.lax.while_loop(lambda h: (h @ p["w"]).sum() < 1, lambda h: h + 1.0, x),
        (-2,),
    ),
    "an einsum of two, and a gate": programs(
        gated, (-2,), jnp.ones((2, 8, 4, 32)), jnp.ones((2, 8, 4)), w=draw(4, 32, 16)
    ),
    "experts": programs(
        lambda p, x: jax.lax.ragged_dot(x[0], p["w"], jnp.array([3, 0, 2], jnp.int32)),
        (-2,),
        w=draw(3, 8, 6),
    ),
    "members of an ensemble": programs(
        lambda p, x: jax.vmap(lambda w, x: jax.lax.conv(x, w, (1,), "SAME"), (0, None))(p["w"], x),
        (-2, -1),
        w=draw(3, 4, 5, 3),
    ),
    "adapted, and its base frozen": programs(
        lambda p, x: x @ jax.lax.stop_gradient(p["w"]) + x @ p["down"] @ p["up"],
        {"w": (-2,), "down": (-2,), "up": (-2,)},
        down=draw(8, 2),
        up=draw(2, 6),
    ),
    "a learned first state": programs(
        lambda p, x: turn(p, p["start"], x[0]),
        {"w": (-2,), "start": None},
        w=draw(6, 6),
        start=draw(6),
    ),
    "scales and positions": programs(
        attended,
        {"w": (-2,), "v": (-2,), "u": (-2,)} | dict.fromkeys(("position", "scale", "bias")),
        v=V,
        u=draw(3, 8),
        position=draw(5, 8),
        scale=draw(8),
        bias=draw(2, 5, 5),
    ),
    "tables": programs(
        looked_up,
        {"w": (-2,), "word": None, "place": None},
        jnp.array([[1, 2, 0], [0, 6, 1]]),
        jnp.array([[0, 1, 2], [2, 1, 0]]),
        word=draw(7, 8),
        place=draw(3, 8),
    ),
    "constants in the place of inputs": (
        lambda: (lambda p: jnp.tanh(X @ p["w"]) @ p["v"], {"w": W, "v": V}),
        {"w": (-2,), "v": (-2,)},
    ),
    "a flag": (
        lambda: (lambda p, x, train: x @ p["w"] if train else x, {"w": W}, X, True),
        {"w": (-2,)},
    ),
}


@pytest.mark.parametrize("name", MODELS | PROGRAMS)
def test_the_traced_layout_is_the_one_by_hand(name: str) -> None:
    """Parameters and their shapes have one layout."""
    make, axes = (MODELS | PROGRAMS)[name]
    apply, params, *inputs = make()
    expected = layout_from_rules([(f"^{path}$", fan_in) for path, fan_in in axes.items()])(params)
    for tree in (params, jax.eval_shape(lambda: params)) if name in PROGRAMS else (params,):
        actual = traced_layout(read(apply, tree, *inputs))(params)
        assert jax.tree.structure(actual) == jax.tree.structure(expected)
        assert by_path(actual) == by_path(expected)


def test_nodes_masks_and_exclusion() -> None:
    module = nn.MultiHeadDotProductAttention(2)
    params = jax.jit(module.init)(KEY, X)["params"]
    forward = lambda p, x: module.apply({"params": p}, x)  # noqa: E731
    layout = traced_layout(read(forward, params, X))
    raw = reparametrize(params, Scaled, layout)
    assert traced_layout(read(forward, raw, X))(raw) == layout(raw)
    assert layout(raw)["query"]["kernel"] == Scaled((-3,), None, (-3,))
    assert exclude("^out/", layout=layout)(params)["out"]["kernel"] is None
    mask = jax.tree.map_with_path(lambda path, _: "out" in jax.tree_util.keystr(path), params)
    tx = optax.masked(sphere_projection(layout=layout), mask)
    updates, _ = tx.update(params, tx.init(params), params)
    np.testing.assert_array_equal(updates["query"]["kernel"], params["query"]["kernel"])
    landed = optax.apply_updates(params, updates)["out"]["kernel"]
    np.testing.assert_allclose(np.square(landed).sum((0, 1)), 2.0, rtol=1e-5)


def test_a_layer_behind_experts_is_collected() -> None:
    """The rows are in the order of their experts."""
    params, rows = {"experts": draw(3, 8, 6), "head": V}, draw(10, 8)
    apply = lambda p, x, n: jnp.tanh(jax.lax.ragged_dot(x, p["experts"], n)) @ p["head"]  # noqa: E731
    sizes = jnp.array([5, 1, 4], jnp.int32)
    layout = exclude("^experts", layout=traced_layout(read(apply, params, rows, sizes)))
    _, layers = collect_preactivations(read(apply, params, rows, sizes), layout=layout)
    parts = zip(np.split(np.float64(rows), [5, 6]), np.float64(params["experts"]), strict=True)
    hidden = np.tanh(np.concatenate([x @ w for x, w in parts]))
    np.testing.assert_allclose(layers["head"], hidden @ np.float64(V), **FLOAT32)
