"""Rows, units and biases are identified by the structure of the program, never by sizes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxnorm import collect_preactivations, first_layer, read, traced_layout, with_scale_noise
from jaxnorm.nnx import fold_batch_norm
from tests.nnx.models import replaced
from tests.tolerances import FLOAT32
from tests.trace.forms import draw

Apply = Callable[..., Any]

ROWS, STEPS, INPUTS, UNITS = 8, 8, 4, 8
X, Y = draw(ROWS, STEPS, INPUTS), draw(ROWS, STEPS, INPUTS)
PARAMS = {"kernel": draw(INPUTS, UNITS), "other": draw(UNITS, UNITS), "position": draw(STEPS, 8)}
KERNEL, BOTH = ("kernel",), ("kernel", "other")


def layout_of(*names: str) -> Any:
    return lambda params: {name: (-2,) if name in names else None for name in params}


def recurrent(p: Any, x: Any) -> Any:
    """The first state has as many zeros as there are rows, and depends on no input."""
    h = jnp.zeros((len(x), UNITS))
    for t in range(2):
        h = jnp.tanh(x[:, t] @ p["kernel"] + h @ p["other"])
    return h


def queried(p: Any, x: Any) -> Any:
    """Learned queries, broadcast to the rows."""
    queries = jnp.broadcast_to(p["position"], (len(x), STEPS, UNITS))
    return (queries @ p["other"]) @ (x @ p["kernel"]).mT


def scanned_in_time(p: Any, x: Any) -> Any:
    step = lambda h, x: (jnp.tanh(x @ p["kernel"]) + h, None)  # noqa: E731
    return jax.lax.scan(step, jnp.zeros((len(x), UNITS)), x.swapaxes(0, 1))[0]


#: Models with rows first in their output, as many rows as steps, and their kernels with noise.
BY_ROW: dict[str, tuple[Apply, tuple[str, ...], tuple[Any, ...]]] = {
    "rows first": (lambda p, x: x @ p["kernel"], KERNEL, (X,)),
    "steps first": (
        lambda p, x: (x.swapaxes(0, 1) @ p["kernel"]).swapaxes(0, 1),
        KERNEL,
        (X,),
    ),
    "units first": (lambda p, x: (p["kernel"].T @ x.mT).mT, KERNEL, (X,)),
    "a state of zeros": (recurrent, BOTH, (X,)),
    "queries": (queried, BOTH, (X,)),
    "positions of more steps than the product": (
        lambda p, x: x[:, :1] @ p["kernel"] + p["position"][None],
        KERNEL,
        (X,),
    ),
    "rows of two arguments": (
        lambda p, x, y: (x @ p["kernel"]) * (y @ p["kernel"]),
        KERNEL,
        (X, Y),
    ),
    "rows of one argument": (lambda p, pair: pair[1] @ p["kernel"], KERNEL, ((X, Y),)),
    "another program for more rows": (
        lambda p, x: (x if len(x) == ROWS else jnp.tanh(x) + 1) @ p["kernel"],
        KERNEL,
        (X,),
    ),
    "the nodes of a graph, with its matrix": (
        lambda p, x, graph: graph @ (jnp.tanh(graph @ (x @ p["kernel"])) @ p["other"]),
        BOTH,
        (X[:, 0], jnp.eye(ROWS)),
    ),
}


@pytest.mark.kept("rows first")
@pytest.mark.parametrize("name", BY_ROW)
def test_the_draws_of_a_row_are_those_of_its_own_key(name: str) -> None:
    """Another key of one row changes that row, whichever axis of the product counts rows."""
    apply, kernels, inputs = BY_ROW[name]
    net = read(apply, PARAMS, *inputs, as_inputs=["position"])
    noisy = with_scale_noise(net, 0.3, layout=layout_of(*kernels))
    keys = jax.random.split(jax.random.key(0), ROWS)
    before = noisy(keys, PARAMS, *inputs)
    after = noisy(keys.at[2].set(jax.random.key(1)), PARAMS, *inputs)
    changed = np.abs(np.asarray(after - before)).reshape(ROWS, -1).max(1) > 1e-3
    np.testing.assert_array_equal(changed, np.arange(ROWS) == 2)


def fixed(p: Any, x: Any) -> Any:
    return x.reshape(ROWS, STEPS, INPUTS) @ p["kernel"]


#: Products of which no axis is known to count the rows of the first input.
WITHOUT_ROWS: dict[str, tuple[Apply, tuple[Any, ...]]] = {
    "rows among positions": (lambda p, x: x.reshape(-1, INPUTS) @ p["kernel"], (X,)),
    "an input of as many numbers": (lambda p, x, y: x.sum() * (y @ p["kernel"]), (X, Y)),
    "no rows": (lambda p, x: x.sum() * (p["position"][:, :4] @ p["kernel"]), (X,)),
    "one batch size alone": (fixed, (X,)),
}


@pytest.mark.parametrize("name", WITHOUT_ROWS)
def test_a_product_without_rows_is_refused(name: str) -> None:
    apply, inputs = WITHOUT_ROWS[name]
    net = read(apply, PARAMS, *inputs, as_inputs=["position"])
    noisy = with_scale_noise(net, 0.3, layout=layout_of("kernel"))
    with pytest.raises(ValueError, match=r"'kernel'.*per='step'"):
        noisy(jax.random.key(0), PARAMS, *inputs)


CONSTANT, POSITION = draw(UNITS), draw(STEPS, UNITS)
#: Constants of the closure that are equal for all rows.
CONSTANTS: dict[str, tuple[Apply, Any]] = {
    "per unit": (lambda p, x: (x @ p["kernel"]) + CONSTANT[None], CONSTANT),
    "per unit, jitted": (jax.jit(lambda p, x: x @ p["kernel"] + CONSTANT[None]), CONSTANT),
    "per step": (lambda p, x: x @ p["kernel"] + POSITION[None], POSITION),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("rows", [1, 2, ROWS])
def test_a_constant_is_a_bias_at_any_batch_size(name: str, rows: int) -> None:
    apply, bias = CONSTANTS[name]
    params, x = {"kernel": PARAMS["kernel"]}, X[:rows] if bias.ndim > 1 else X[:rows, 0]
    _, layers = collect_preactivations(read(apply, params, x))
    expected = np.float64(x) @ np.float64(params["kernel"]) + np.float64(bias)
    np.testing.assert_allclose(layers["kernel"], expected, **FLOAT32)


def test_a_constant_per_row_is_no_bias() -> None:
    x, constant, params = X[:, 0], draw(ROWS, UNITS), {"kernel": PARAMS["kernel"]}
    apply = lambda p, x: x @ p["kernel"] + constant  # noqa: E731
    _, layers = collect_preactivations(read(apply, params, x))
    np.testing.assert_allclose(layers["kernel"], x @ params["kernel"], **FLOAT32)


class Normalized(nnx.Module):
    """A layer, a change of its units, and batch normalization."""

    def __init__(self, layer: nnx.Module, change: Callable[[Any], Any]) -> None:
        self.layer, self.change = layer, nnx.static(change)
        self.norm = nnx.BatchNorm(6, rngs=nnx.Rngs(1))
        self.norm.mean[...] = self.norm.scale[...] = 1 + jnp.arange(6.0)
        self.norm.var[...] = 2 + jnp.arange(6.0)

    def __call__(self, x: Any) -> Any:
        return self.norm(self.change(self.layer(x)))


class Reversed(nnx.Linear):
    def __call__(self, x: Any) -> Any:
        return x @ self.kernel[...][:, ::-1] + self.bias[...][None, None]


def shuffled(h: Any) -> Any:
    return h.reshape(*h.shape[:-1], 2, 3).swapaxes(-1, -2).reshape(h.shape)


def linear() -> nnx.Linear:
    return nnx.Linear(4, 6, rngs=nnx.Rngs(0))


#: Layers whose units are in another order than those of the normalization, or in the same.
ORDERS: dict[str, tuple[Callable[[], nnx.Module], Callable[[Any], Any], bool]] = {
    "the same": (linear, lambda h: h, True),
    "the same again": (linear, lambda h: shuffled_back(shuffled(h)), True),
    "split and joined": (linear, lambda h: h.reshape(-1, 2, 3).reshape(h.shape), True),
    "shuffled": (linear, shuffled, False),
    "groups that are shuffled": (
        lambda: nnx.Conv(4, 6, (1,), feature_group_count=2, rngs=nnx.Rngs(0)),
        shuffled,
        False,
    ),
    "a reversed kernel": (lambda: Reversed(4, 6, rngs=nnx.Rngs(0)), lambda h: h, False),
}


def shuffled_back(h: Any) -> Any:
    return h.reshape(*h.shape[:-1], 3, 2).swapaxes(-1, -2).reshape(h.shape)


@pytest.mark.kept("a reversed kernel", "split and joined")
@pytest.mark.parametrize("name", ORDERS)
def test_a_normalization_is_folded_into_units_in_its_own_order(name: str) -> None:
    make, change, follows = ORDERS[name]
    model, x = Normalized(make(), change), draw(5, 7, 4)
    model.eval()
    folded, remaining = fold_batch_norm(model, x)
    assert remaining == ([] if follows else [("norm",)])
    np.testing.assert_allclose(folded(x), model(x), rtol=1e-5, atol=1e-5)
    model.norm.scale[...] = jnp.ones(6)
    plain = replaced(model, x)
    assert (type(plain.norm).__name__ == "Identity") == follows


EXPERTS, HIDDEN = 3, 5
MIXTURE = {
    "gate": draw(INPUTS, EXPERTS),
    "in": draw(EXPERTS, INPUTS, HIDDEN),
    "out": draw(EXPERTS, HIDDEN, UNITS),
    "bias": draw(EXPERTS, UNITS),
    "scale": draw(EXPERTS, UNITS),
}
HEADS = {"query": draw(4, 2, 4), "key": draw(4, 2, 4), "bias": draw(2, 4), "pos": draw(STEPS, 2, 4)}
GRAPH = {"w": draw(INPUTS, UNITS), "bias": draw(UNITS), "node": draw(ROWS, UNITS)}
HYPER = {"h": draw(3, 20), "bias": draw(20)}


def mixture(last: Callable[[Any, Any], Any]) -> Apply:
    """Experts, whose outputs are weighted by a gate of the inputs."""

    def apply(p: Any, x: Any) -> Any:
        hidden = jnp.tanh(jnp.einsum("bi,eih->beh", x, p["in"]))
        outputs = last(jnp.einsum("beh,eho->beo", hidden, p["out"]), p)
        return jnp.einsum("be,beo->bo", jax.nn.softmax(x @ p["gate"]), outputs)

    return apply


def attention(p: Any, x: Any) -> Any:
    query, key = (jnp.einsum("btf,fhd->bthd", x, p[name]) for name in ("query", "key"))
    key = key + p["bias"][None, None] + p["pos"][None]
    return jnp.einsum("bthd,bshd->bhts", query, key)


def hyper(p: Any, z: Any, x: Any) -> Any:
    return jnp.einsum("bi,bio->bo", x, (z @ p["h"] + p["bias"][None]).reshape(-1, 4, 5))


#: Biases, scales and positions that meet activations before a product of activations.
FREE: dict[str, tuple[Apply, Any, tuple[Any, ...], dict[str, tuple[int, ...]]]] = {
    **{
        f"experts: {name}": (
            mixture(last),
            MIXTURE,
            (X[:, 0],),
            dict.fromkeys(("gate", "in", "out"), (-2,)),
        )
        for name, last in {
            "a bias": lambda h, p: h + p["bias"][None],
            "a scale and a bias": lambda h, p: h * p["scale"][None] + p["bias"][None],
            "a scale of activations": lambda h, p: jax.nn.gelu(h) * p["scale"][None],
        }.items()
    },
    "positions of keys": (attention, HEADS, (X,), dict.fromkeys(("query", "key"), (-3,))),
    "nodes of a graph": (
        lambda p, x, a: a @ (x @ p["w"] + p["bias"][None] + p["node"]),
        GRAPH,
        (X[:, 0], draw(ROWS, ROWS)),
        {"w": (-2,)},
    ),
    "a hypernetwork": (hyper, HYPER, (draw(6, 3), draw(6, 4)), {"h": (-2,)}),
}


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("rows", [1, None])
def test_biases_scales_and_positions_of_activations_are_free(name: str, rows: Any) -> None:
    apply, params, inputs, axes = FREE[name]
    if rows and "graph" not in name:
        inputs = tuple(x[:rows] for x in inputs)
    assert traced_layout(read(apply, params, *inputs))(params) == {n: axes.get(n) for n in params}


def reports(x: Any) -> None:
    jax.debug.callback(lambda value: None, x.sum())


@pytest.mark.parametrize("log", [reports, jax.jit(reports), jax.jit(lambda x: None)])
def test_a_call_without_outputs_is_skipped(log: Callable[[Any], None]) -> None:
    def apply(p: Any, x: Any) -> Any:
        log(p["kernel"])
        log(h := x @ p["kernel"])
        return h

    params = {"kernel": PARAMS["kernel"]}
    assert traced_layout(read(apply, params, X))(params) == {"kernel": (-2,)}
    assert first_layer(read(apply, params, X)) == {"kernel": True}
    np.testing.assert_array_equal(
        collect_preactivations(read(apply, params, X))[0], X @ params["kernel"]
    )
