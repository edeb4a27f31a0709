"""Layouts read off models that were not written here, beside those that one writes by hand."""

import re
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
from jax.sharding import PartitionSpec as P

import jaxnorm.nnx
from experiments.config import Config
from experiments.models.registry import build
from jaxnorm import (
    Scaled,
    collect_preactivations,
    constrain,
    constraint_drift,
    effective,
    exclude,
    flax_layout,
    layout_from_rules,
    reparametrize,
    sphere_projection,
    traced_layout,
)
from jaxnorm._trees._paths import entries
from tests.tolerances import DRIFT, FLOAT32

KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 8)), jnp.float32)
IMAGES = jnp.ones((2, 6, 6, 4))
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
    """An embedding, attention with its norms, and a head that is the embedding again."""

    tied: bool = False

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        table = nn.Embed(7, 8, name="table")
        x = table(tokens) + self.param("positions", nn.initializers.ones, (3, 8))[None]
        x = x + nn.MultiHeadDotProductAttention(2, name="attention")(nn.LayerNorm(name="norm")(x))
        return table.attend(x) if self.tied else nn.Dense(3, name="head")(x.mean(1))


class Stacked(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        class Layer(nn.Module):
            @nn.compact
            def __call__(self, x: Any, _: Any) -> Any:
                return nn.relu(nn.Dense(8, name="dense")(x)), None

        layers = nn.scan(
            nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
        )
        return layers(name="stack")(x, None)[0]


class StackedNnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=3)
        @nnx.vmap
        def make(rngs: nnx.Rngs) -> nnx.Module:
            return nnx.Conv(4, 4, (3,), rngs=rngs)

        self.layers = make(rngs)

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def forward(layer: Any, x: Any) -> Any:
            return nnx.relu(layer(x))

        return forward(self.layers, x)


def scanned(model: Any, x: Any) -> Any:
    """Three Equinox layers, stacked by filter_vmap, one after the other."""
    arrays, static = eqx.partition(model, eqx.is_array)

    def step(x: Any, layer: Any) -> Any:
        return jax.vmap(eqx.combine(layer, static))(x), None

    return jax.lax.scan(step, x, arrays)[0]


def gru(model: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        return model(x, state), None

    return jax.lax.scan(step, jnp.zeros(3), x)[0]


def conv(**options: Any) -> Callable[[nnx.Rngs], nnx.Module]:
    return lambda rngs: nnx.Conv(4, 6, (3, 3), rngs=rngs, **options)


#: A model, and the fan-in of its kernels by path; every other leaf is free.
MODELS: dict[str, tuple[Callable[[], Model], dict[str, tuple[int, ...]]]] = {
    "linen transformer": (
        lambda: linen(Classifier(), TOKENS),
        {f"attention/{name}/kernel": (-3,) for name in ("query", "key", "value")}
        | {"attention/out/kernel": (-3, -2), "head/kernel": (-2,)},
    ),
    "a table that is a head too": (
        lambda: linen(Classifier(tied=True), TOKENS),
        {f"attention/{name}/kernel": (-3,) for name in ("query", "key", "value")}
        | {"attention/out/kernel": (-3, -2), "table/embedding": (-1,)},
    ),
    "nnx attention": (
        lambda: of_nnx(lambda r: nnx.MultiHeadAttention(2, 8, decode=False, rngs=r), X),
        {f"{name}/kernel": (-3,) for name in ("query", "key", "value")} | {"out/kernel": (-3, -2)},
    ),
    "nnx einsum": (
        lambda: of_nnx(lambda r: nnx.Einsum("bti,hid->bthd", (2, 8, 3), (2, 3), rngs=r), X),
        {"kernel": (-2,)},
    ),
    "nnx lora": (
        lambda: of_nnx(lambda r: nnx.LoRALinear(8, 6, lora_rank=2, rngs=r), X),
        {"kernel": (-2,), "lora/lora_a": (-2,), "lora/lora_b": (-2,)},
    ),
    "convolution": (lambda: of_nnx(conv(), IMAGES), {"kernel": (-4, -3, -2)}),
    "grouped": (lambda: of_nnx(conv(feature_group_count=2), IMAGES), {"kernel": (-4, -3, -2)}),
    "transposed": (
        lambda: of_nnx(lambda r: nnx.ConvTranspose(4, 6, (3, 3), rngs=r), IMAGES),
        {"kernel": (-4, -3, -2)},
    ),
    "transposed, with its kernel": (
        lambda: of_nnx(
            lambda r: nnx.ConvTranspose(4, 6, (3, 3), transpose_kernel=True, rngs=r), IMAGES
        ),
        {"kernel": (-4, -3, -1)},
    ),
    "one axis": (lambda: linen(nn.Conv(6, (3,)), X), {"kernel": (-3, -2)}),
    "linen scan": (lambda: linen(Stacked(), X), {"stack/dense/kernel": (-2,)}),
    "nnx scan": (lambda: of_nnx(StackedNnx, X[..., :4]), {"layers/kernel": (-3, -2)}),
    "equinox stack": (
        lambda: equinox(
            lambda: eqx.filter_vmap(lambda k: eqx.nn.Linear(8, 8, key=k))(jax.random.split(KEY, 3)),
            X[0],
            call=scanned,
        ),
        {"weight": (-1,)},
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
    "equinox convolutions": (
        lambda: equinox(
            lambda: eqx.nn.Sequential(
                [
                    eqx.nn.Conv2d(4, 6, 3, groups=2, key=KEY),
                    eqx.nn.LayerNorm((6, 4, 4)),
                    eqx.nn.ConvTranspose2d(6, 2, 3, stride=2, key=KEY),
                ]
            ),
            jnp.ones((2, 4, 6, 6)),
        ),
        {"layers/0/weight": (-3, -2, -1), "layers/2/weight": (-3, -2, -1)},
    ),
    "equinox embedding": (
        lambda: equinox(
            lambda: eqx.nn.Sequential(
                [eqx.nn.Embedding(7, 4, key=KEY), eqx.nn.Linear(4, 2, key=KEY)]
            ),
            TOKENS[0],
        ),
        {"layers/1/weight": (-1,)},
    ),
    "equinox attention": (
        lambda: equinox(
            lambda: eqx.nn.MultiheadAttention(2, 8, key=KEY),
            X[0],
            call=lambda model, x: model(x, x, x),
        ),
        {f"{name}_proj/weight": (-1,) for name in ("query", "key", "value", "output")},
    ),
    "equinox gru": (
        lambda: equinox(lambda: eqx.nn.GRUCell(8, 3, key=KEY), X[0], call=gru),
        {"weight_ih": (-1,), "weight_hh": (-1,)},
    ),
    "linen gru": (
        lambda: linen(nn.RNN(nn.GRUCell(3)), X),
        {f"cell/{name}/kernel": (-2,) for name in ("ir", "iz", "in", "hr", "hz", "hn")},
    ),
    "linen lstm, its gates side by side": (
        lambda: linen(nn.RNN(nn.OptimizedLSTMCell(3)), X),
        {f"cell/{side}{gate}/kernel": (-2,) for side in "ih" for gate in "ifgo"},
    ),
    "nnx gru": (
        lambda: of_nnx(lambda r: nnx.RNN(nnx.GRUCell(8, 3, rngs=r), rngs=r), X),
        {"cell/dense_i/kernel": (-2,), "cell/dense_h/kernel": (-2,)},
    ),
}


def by_hand(params: Any, axes: dict[str, tuple[int, ...]]) -> Any:
    """The layout's result with these axes, through rules that name every kernel."""
    return layout_from_rules([(f"^{path}$", own) for path, own in axes.items()])(params)


@pytest.mark.parametrize("name", MODELS)
def test_a_layout_as_one_writes_it_by_hand(name: str) -> None:
    make, axes = MODELS[name]
    apply, params, *inputs = make()
    layout = traced_layout(apply, params, *inputs)
    wanted = by_hand(params, axes)
    assert jax.tree.structure(layout(params)) == jax.tree.structure(wanted)
    assert entries(layout(params)) == entries(wanted)


@pytest.mark.parametrize("name", ["nnx attention", "nnx einsum", "transposed, with its kernel"])
def test_as_the_modules_types_say(name: str) -> None:
    """A second oracle, where `jaxnorm.nnx.layout` knows every module."""
    kinds = {
        "nnx attention": lambda r: nnx.MultiHeadAttention(2, 8, decode=False, rngs=r),
        "nnx einsum": lambda r: nnx.Einsum("bti,hid->bthd", (2, 8, 3), (2, 3), rngs=r),
        "transposed, with its kernel": lambda r: nnx.ConvTranspose(
            4, 6, (3, 3), transpose_kernel=True, rngs=r
        ),
    }
    apply, params, *inputs = MODELS[name][0]()
    by_type = jaxnorm.nnx.layout(nnx.eval_shape(lambda: kinds[name](nnx.Rngs(0))))
    assert traced_layout(apply, params, *inputs)(params) == by_type(params)


@pytest.mark.parametrize(("name", "shape"), [("cnn9", (16, 16, 3)), ("dgcnn", (32, 3))])
def test_plain_networks_are_as_their_names_say(name: str, shape: tuple[int, ...]) -> None:
    """Flax convolutions and dense layers around batch normalization: all axes but the last."""
    settings = Config(model=name, channels=8)
    model = nnx.eval_shape(lambda: build(settings, shape, 10, nnx.Rngs(0), norm="bn"))
    apply, params, state = jaxnorm.nnx.functionalize(model)
    layout = traced_layout(
        lambda p, state, x: apply(p, state, x, train=True)[0],
        params,
        state,
        jax.ShapeDtypeStruct((2, *shape), jnp.float32),
    )
    assert entries(layout(params)) == entries(flax_layout(params))


W, V = jnp.ones((8, 6)), jnp.ones((6, 3))
SMALL = {"w": W, "v": V, "q": jnp.ones((4, 8)), "row": jnp.ones((1, 6))}
MESH = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


def in_shard_map(params: Any, x: Any) -> Any:
    spec = P("data")
    return jax.shard_map(lambda p, x: x @ p["w"], mesh=MESH, in_specs=(P(), spec), out_specs=spec)(
        params, x
    )


def looped(params: Any, x: Any) -> Any:
    """The kernel is carried, as a while loop's state."""
    return jax.lax.while_loop(
        lambda carry: carry[1].sum() < 9.0,
        lambda carry: (carry[0], jnp.tanh(carry[1] @ carry[0] @ carry[0].mT * 0 + carry[1])),
        (params["w"], x),
    )


#: Programs around one kernel w of shape (8, 6), and the fan-in that is meant.
VIEWED: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "as it is": (lambda p, x: x @ p["w"], (-2,)),
    "transposed": (lambda p, x: p["w"].T @ x[0].T, (-2,)),
    "the other way": (lambda p, x: x[..., :6] @ p["w"].T, (-1,)),
    "cast": (lambda p, x: x.astype(jnp.bfloat16) @ p["w"].astype(jnp.bfloat16), (-2,)),
    "split and merged": (
        lambda p, x: jnp.einsum("bti,ihd->bthd", x, p["w"].reshape(8, 2, 3)),
        (-2,),
    ),
    "split fan-in": (
        lambda p, x: jnp.einsum("btij,ijo->bto", x.reshape(2, 5, 4, 2), p["w"].reshape(4, 2, 6)),
        (-2,),
    ),
    "as one unit": (lambda p, x: jnp.tile(x[:, 0], 6) @ p["w"].reshape(48), (-2, -1)),
    "broadcast to a batch": (
        lambda p, x: jnp.einsum("bti,bio->bto", x, jnp.broadcast_to(p["w"], (2, 8, 6))),
        (-2,),
    ),
    "a part of the units": (lambda p, x: x @ p["w"][:, 2:4], (-2,)),
    "in two parts": (lambda p, x: [x @ w for w in jnp.split(p["w"], 2, axis=1)], (-2,)),
    "jit and remat": (
        lambda p, x: jax.checkpoint(jax.jit(lambda w: jnp.tanh(x @ w)))(p["w"]),
        (-2,),
    ),
    "both branches": (
        lambda p, x: jax.lax.cond(x.sum() > 0, lambda w: x @ w, lambda w: -x @ w, p["w"]),
        (-2,),
    ),
    "passed through a branch": (
        lambda p, x: x @ jax.lax.cond(x.sum() > 0, lambda w: w, lambda w: w, p["w"]),
        (-2,),
    ),
    "in a loop's condition": (
        lambda p, x: jax.lax.while_loop(lambda h: (h @ p["w"]).sum() < 1, lambda h: h + 1.0, x),
        (-2,),
    ),
    "shard_map": (in_shard_map, (-2,)),
    "barrier": (lambda p, x: x @ jax.lax.optimization_barrier((p["w"], x))[0], (-2,)),
    "frozen": (lambda p, x: x @ jax.lax.stop_gradient(p["w"]), (-2,)),
    "put on a device": (lambda p, x: x @ jax.device_put(p["w"]), (-2,)),
    "put on a device with others": (lambda p, x: x @ jax.device_put((x, p["w"].T))[1].T, (-2,)),
    "divided": (lambda p, x: x @ (p["w"] / 4), (-2,)),
    "with a sign": (lambda p, x: x @ -p["w"], (-2,)),
    "times a number": (lambda p, x: x @ (np.float32(0.1) * p["w"]).T.reshape(6, 8).T, (-2,)),
    "times a constant a unit": (lambda p, x: x @ (p["w"] * jnp.arange(6.0)[None]), (-2,)),
    "times a constant an output, the other way": (
        lambda p, x: x[..., :6] @ (jnp.arange(8.0)[:, None] * p["w"]).T,
        (-1,),
    ),
}


@pytest.mark.parametrize("name", VIEWED)
def test_what_a_kernel_is_seen_through(name: str) -> None:
    apply, axes = VIEWED[name]
    params = {"w": W}
    assert traced_layout(apply, params, X)(params) == {"w": axes}


#: Uses that have no fan-in, or none that a layout can say; what is said of them.
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "standardized inside": (
        lambda p, x: x @ (p["w"] - p["w"].mean(0, keepdims=True)),
        "'w' is changed before it is multiplied with the inputs",
    ),
    "stacked again by a scan": (
        lambda p, x: x @ jax.lax.scan(lambda n, row: (n, row[None]), 0, p["w"])[1][:, 0],
        "'w' is changed before it is multiplied with the inputs",
    ),
    "a product of two": (
        lambda p, x: x @ (p["w"] @ p["v"]),
        "'v' is multiplied with another parameter; 'w' is multiplied with another parameter",
    ),
    "learned queries": (
        lambda p, x: (p["q"] @ p["w"])[None] @ x[..., :6].mT,
        "'q' is multiplied with another parameter; 'w' is",
    ),
    "back and forth": (
        lambda p, x: x @ p["w"] @ p["w"].T,
        "'w' is contracted along (-2,) and (-1,)",
    ),
    "carried, back and forth": (looped, "'w' is contracted along (-2,) and (-1,)"),
    "a part of the fan-in": (
        lambda p, x: x[..., :4] @ p["w"][:4],
        "'w' is contracted along a part of an axis, or joined to others",
    ),
    "a part of an axis": (
        lambda p, x: x.reshape(2, 40)[:, :24] @ p["w"].reshape(24, 2),
        "'w' is contracted along a part of an axis",
    ),
    "side by side along the fan-in": (
        lambda p, x: x @ jnp.concatenate([p["v"], jnp.ones((2, 3))]),
        "'v' is contracted along a part of an axis, or joined to others",
    ),
    "one row for all inputs": (
        lambda p, x: x @ jnp.broadcast_to(p["w"][:1], (8, 6)),
        "'w' is contracted along a part of an axis, or joined to others",
    ),
    "a row of its own for all inputs": (
        lambda p, x: x @ jnp.broadcast_to(p["row"], (8, 6)),
        "'row' is contracted along a part of an axis, or joined to others",
    ),
    "reshaped across its axes": (
        lambda p, x: x[..., :6] @ p["w"].reshape(6, 8),
        "'w' is changed before it is multiplied with the inputs",
    ),
    "each group of rows its own": (
        lambda p, x: jax.lax.conv_general_dilated(
            x[..., :6].mT, p["w"][..., None], (1,), "SAME", batch_group_count=2
        ),
        "'w' is what a convolution slides over",
    ),
    "slid over": (
        lambda p, x: jax.lax.conv(p["w"][None, None], x[:1, None, :2, :2], (1, 1), "SAME"),
        "'w' is what a convolution slides over",
    ),
    "times a constant mask": (
        lambda p, x: x @ (p["w"] * jnp.tri(8, 6)),
        "'w' is multiplied by a constant that differs along its fan-in",
    ),
    "times a constant an input": (
        lambda p, x: x @ (p["w"] * jnp.arange(8.0)[:, None]),
        "'w' is multiplied by a constant that differs along its fan-in",
    ),
    "divided by": (
        lambda p, x: x @ (2 / p["w"]),
        "'w' is changed before it is multiplied with the inputs",
    ),
    "an unknown primitive": (
        lambda p, x: jax.lax.linalg.triangular_solve(p["w"][:6], x[0, 0, :6, None], left_side=True),
        "'w' goes into a triangular_solve",
    ),
    "sharded inside": (
        lambda p, x: jax.shard_map(
            lambda w, x: jax.lax.psum(x @ w, "data"),
            mesh=MESH,
            in_specs=(P("data"), P(None, "data")),
            out_specs=P(),
        )(p["w"], x[0]),
        "'w' goes into a shard_map",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_by_name(name: str) -> None:
    apply, message = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        traced_layout(apply, SMALL, X)
    assert "layout_from_rules" in str(error.value)
    assert "free=[regex]" in str(error.value)
    assert "\n" not in str(error.value)


#: Each with the sizes of h, w and g for which JAX begins with w, and with h times g.
EINSUM = "btef,efd,bte->btd"
SIZES = {"w first": ((2, 8, 4, 32), (4, 32, 16)), "w last": ((2, 4, 8, 64), (8, 64, 64))}
EINSUMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "plain": lambda h, w, g: jnp.einsum(EINSUM, h, w, g),
    "jit": jax.jit(lambda h, w, g: jnp.einsum(EINSUM, h, w, g)),
    "vmap": lambda h, w, g: jax.vmap(lambda h, g: jnp.einsum("tef,efd,te->td", h, w, g))(h, g),
    "remat": jax.checkpoint(lambda h, w, g: jnp.einsum(EINSUM, h, w, g)),
    "without a result's indices": lambda h, w, g: jnp.einsum("btef,efd,bte", h, w, g),
    "with a scalar": lambda h, w, g: jnp.einsum(",btef,efd->bted", g.sum(), h, w),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", EINSUMS)
def test_an_einsum_of_three_is_refused_whatever_the_sizes(name: str, sizes: str) -> None:
    """JAX picks the order by the sizes: (-2,) for the first, (-3, -2) for the second."""
    of_h, of_w = SIZES[sizes]
    inputs = jnp.ones(of_h), jnp.ones(of_h[:3])
    params = {"kernel": jnp.ones(of_w)}
    apply = lambda p, h, g: EINSUMS[name](h, p["kernel"], g)  # noqa: E731
    message = r"'kernel' is in the einsum '[a-z,>-]*' of more than two operands.*einsums of two"
    with pytest.raises(ValueError, match=message):
        traced_layout(apply, params, *inputs)
    with pytest.raises(ValueError, match=message):
        collect_preactivations(apply, params, *inputs)


@pytest.mark.parametrize("sizes", SIZES)
def test_einsums_of_two_have_one_order(sizes: str) -> None:
    of_h, of_w = SIZES[sizes]
    params = {"kernel": jnp.ones(of_w)}

    def apply(p: Any, h: Any, g: Any) -> Any:
        return jnp.einsum("bted,bte->btd", jnp.einsum("btef,efd->bted", h, p["kernel"]), g)

    layout = traced_layout(apply, params, jnp.ones(of_h), jnp.ones(of_h[:3]))
    assert layout(params) == {"kernel": (-2,)}


def of_experts(params: Any, rows: Any, sizes: Any) -> Any:
    """Rows in the order of their experts, and how many each expert has."""
    hidden = jnp.tanh(jax.lax.ragged_dot(rows, params["experts"]["kernel"], sizes))
    return hidden @ params["head"]["kernel"]


def test_a_ragged_product_says_the_fan_in_of_its_experts() -> None:
    params = {"experts": {"kernel": jnp.ones((3, 8, 6))}, "head": {"kernel": V}}
    rows, sizes = X.reshape(10, 8), jnp.array([5, 1, 4], jnp.int32)
    layout = traced_layout(of_experts, params, rows, sizes)
    assert layout(params) == {"experts": {"kernel": (-2,)}, "head": {"kernel": (-2,)}}
    with pytest.raises(ValueError, match="experts/kernel as they are, or has rows of different"):
        collect_preactivations(of_experts, params, rows, sizes, layout=layout)
    _, seen = collect_preactivations(
        of_experts, params, rows, sizes, layout=exclude("^experts/", layout=layout)
    )
    hidden = np.tanh(
        np.concatenate(
            [
                rows[i:j] @ w
                for i, j, w in zip((0, 5, 6), (5, 6, 10), params["experts"]["kernel"], strict=True)
            ]
        )
    )
    np.testing.assert_allclose(seen["head/kernel"], hidden @ V, **FLOAT32)


def test_a_ragged_product_without_parts_for_its_groups_is_refused() -> None:
    """One sum for each group of the rows, of the model's inputs and of a parameter."""
    numbers = jax.lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    sizes = jnp.array([3, 5], jnp.int32)

    def apply(params: Any, x: Any) -> Any:
        return jax.lax.ragged_dot_general(x, params["w"], sizes, numbers)

    with pytest.raises(ValueError, match="'w' is in a ragged product"):
        traced_layout(apply, SMALL, X[0].T)


def test_learned_queries_can_be_named_as_inputs() -> None:
    apply, _ = REFUSED["learned queries"]
    axes = dict.fromkeys(SMALL) | {"w": (-2,)}
    assert traced_layout(apply, SMALL, X, free=["^q$"])(SMALL) == axes


def test_a_learned_first_state_is_no_kernel() -> None:
    """It is carried into a loop, and multiplied with the kernel there."""

    def apply(params: Any, x: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            return jnp.tanh(state @ params["w"] + x), None

        return jax.lax.scan(step, params["start"], x)[0]

    params = {"w": jnp.ones((8, 8)), "start": jnp.ones(8)}
    assert traced_layout(apply, params, X[0])(params) == {"w": (-2,), "start": None}


def test_without_inputs_constants_are_what_kernels_meet() -> None:
    params = {"w": W, "v": V}
    layout = traced_layout(lambda p: jnp.tanh(X @ p["w"]) @ p["v"], params)
    assert layout(params) == {"w": (-2,), "v": (-2,)}


def test_a_model_without_kernels_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"none of its parameters.*paths are: q, row, v, w\. Pass apply"
    ):
        traced_layout(lambda p, x: x + p["q"].sum(), SMALL, X)


def test_flags_and_shapes_will_do() -> None:
    def apply(params: Any, x: Any, train: bool) -> Any:
        return x @ params["w"] if train else x

    shapes = jax.eval_shape(lambda: ({"w": W}, X))
    assert traced_layout(apply, *shapes, True)({"w": W}) == {"w": (-2,)}


@pytest.fixture(scope="module")
def attention() -> Any:
    module = nn.MultiHeadDotProductAttention(2)
    return module, jax.jit(module.init)(KEY, X)["params"]


def test_constrained_steps_on_attention_stay_on_the_set(attention: Any) -> None:
    """Thirty steps through raw trees and updates, with one layout read off the plain model."""
    module, params = attention
    forward = lambda p, x: module.apply({"params": p}, x)  # noqa: E731
    layout = traced_layout(forward, params, X)
    raw, tx = constrain(params, optax.sgd(0.1, momentum=0.9), layout=layout)
    assert raw["query"]["kernel"].scale.shape == (2, 4)
    assert raw["out"]["kernel"].scale.shape == (8,)

    @jax.jit
    def step(raw: Any, state: Any) -> Any:
        gradients = jax.grad(lambda r: jnp.square(forward(effective(r), X) - X).mean())(raw)
        updates, state = tx.update(gradients, state, raw)
        return optax.apply_updates(raw, updates), state

    state, before = tx.init(raw), raw
    for _ in range(30):
        raw, state = step(raw, state)
    moved = np.abs(raw["query"]["kernel"].kernel - before["query"]["kernel"].kernel).max()
    assert moved > 1e-3
    assert max(map(float, constraint_drift(raw, layout=layout).values())) < DRIFT / 10


def test_nodes_masks_and_exclusion(attention: Any) -> None:
    module, params = attention
    forward = lambda p, x: module.apply({"params": p}, x)  # noqa: E731
    layout = traced_layout(forward, params, X)
    raw = reparametrize(params, Scaled, layout)
    assert traced_layout(forward, raw, X)(raw) == layout(raw)
    assert layout(raw)["query"]["kernel"] == Scaled((-3,), None, (-3,))
    assert exclude("^out/", layout=layout)(params)["out"]["kernel"] is None
    mask = jax.tree.map_with_path(lambda path, _: "out" in jax.tree_util.keystr(path), params)
    tx = optax.masked(sphere_projection(layout=layout), mask)
    updates, _ = tx.update(params, tx.init(params), params)
    np.testing.assert_array_equal(updates["query"]["kernel"], params["query"]["kernel"])
    landed = optax.apply_updates(params, updates)["out"]["kernel"]
    np.testing.assert_allclose(np.square(landed).sum((0, 1)), 2.0, rtol=1e-5)
