"""Gates at the ends of residual branches, and the mean that a run measures."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm._trace.gates import gate_values, gates
from jaxnorm._trace.interpret import trace
from tests.draws import draw
from tests.residual_networks import attend, conv, gru, highway, mlp, normed

N, COUNT = 4, 2
TOKENS = draw(0, 2, 5, N)


def drawn(names: str) -> dict[str, jax.Array]:
    return {name: draw(i, N, N) for i, name in enumerate(names.split())}


def excitation(p: Any, y: Any) -> Any:
    return jax.nn.sigmoid(jax.nn.relu(y.mean(1) @ p["squeeze"]) @ p["excite"])[:, None]


def excited(p: Any, x: Any) -> Any:
    y = mlp(p, x)
    return x + y * excitation(p, y)


def excited_first(p: Any, x: Any) -> Any:
    """The gate is the left factor, and has a gain and an activation around it."""
    y = mlp(p, x)
    return x + 2.0 * (excitation(p, y) * y)


def normalized(p: Any, x: Any) -> Any:
    y = normed(mlp(p, x), p["scale"])
    return x + y * excitation(p, y)


def glu(p: Any, x: Any) -> Any:
    return x + (x @ p["up"]) * jax.nn.sigmoid(x @ p["gate"])


def gated_by_a_number(p: Any, x: Any) -> Any:
    return x + jax.nn.gelu(mlp(p, x)) * jnp.tanh(x @ p["gate"][:, :1])


def jitted(p: Any, x: Any) -> Any:
    y = mlp(p, x)
    return x + jax.jit(jnp.multiply)(y, excitation(p, y))


def inner(p: Any, x: Any) -> Any:
    """A gate before the last kernel."""
    return x + (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]


def routed(p: Any, x: Any) -> Any:
    weights = jax.nn.softmax(x @ p["gate"])
    return x + weights[..., :1] * (x @ p["up"]) + weights[..., 1:2] * (x @ p["down"])


def pair(p: Any, x: Any) -> Any:
    gate = jax.nn.sigmoid(x @ p["gate"])
    return x + (gate * (x @ p["up"]) + (1 - gate) * (x @ p["down"]))


def summed(p: Any, x: Any) -> Any:
    """Weights of experts."""
    several = jnp.stack([x @ p["up"], x @ p["down"]], -1)
    return x + (several * jax.nn.softmax(x @ p["gate"][:, :2])[..., None, :]).sum(-1)


def swish(p: Any, x: Any) -> Any:
    return x + jax.nn.silu(mlp(p, x))


def gelu_by_hand(p: Any, x: Any) -> Any:
    y = mlp(p, x)
    return x + y * jax.nn.sigmoid(1.702 * y)


def bilinear(p: Any, x: Any) -> Any:
    return x + (x @ p["up"]) * (x @ p["down"])


def beside(p: Any, x: Any, gated_first: bool) -> Any:
    """A branch 2 y + y s(y), which the gate is no factor of."""
    y = mlp(p, x)
    gated = y * excitation(p, y)
    return x + (gated + 2.0 * y if gated_first else 2.0 * y + gated)


GATED: dict[str, tuple[Any, str]] = {
    "squeeze and excitation": (excited, "down"),
    "the gate first": (excited_first, "down"),
    "after a scale": (normalized, "scale"),
    "a gated linear unit": (glu, "up"),
    "a number per row": (gated_by_a_number, "down"),
    "in a call": (jitted, "down"),
    "in a checkpoint": (jax.checkpoint(excited), "down"),
}
OTHERS = {
    "plain": lambda p, x: x + mlp(p, x),
    "before the last kernel": inner,
    "a router": routed,
    "a pair": pair,
    "beside the branch": partial(beside, gated_first=False),
    "before the branch": partial(beside, gated_first=True),
    "weights of experts": summed,
    "swish": swish,
    "swish by hand": gelu_by_hand,
    "bilinear": bilinear,
    "attention": lambda p, x: x + attend({**p, "out": p["down"]}, normed(x), x),
    "highway": highway,
    "a recurrent cell": lambda p, x: x + gru(p, x)[:, None] @ p["down"],
}
PARAMS = COUNT * [
    drawn("up down squeeze excite gate q k v wz uz wr ur wn un") | {"scale": jnp.ones(N)}
]


def stack(block: Any) -> Any:
    def apply(p: Any, x: Any) -> Any:
        for layer in p:
            x = block(layer, x)
        return x

    return apply


def traced(apply: Any, params: Any, *inputs: Any) -> Any:
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return trace(apply, params, inputs, nodes=True)


@pytest.mark.parametrize("name", GATED)
def test_finds_the_gate_of_the_last_kernel(name: str) -> None:
    block, kernel = GATED[name]
    found = gates(traced(stack(block), PARAMS, TOKENS))
    last = "down" if kernel == "scale" else kernel
    assert {str(path): len(several) for path, several in found.items()} == {
        f"{i}/{last}": 1 for i in range(COUNT)
    }


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_are_no_gates(name: str) -> None:
    assert gates(traced(stack(OTHERS[name]), PARAMS, TOKENS)) == {}


def test_measures_the_mean_of_each_gate() -> None:
    program = traced(stack(excited), PARAMS, TOKENS)
    found = gates(program)
    means = gate_values(program, found)
    x, expected = np.float64(TOKENS), []
    p = {name: np.float64(w) for name, w in PARAMS[0].items()}
    for _ in range(COUNT):
        y = np.maximum(x @ p["up"], 0) @ p["down"]
        gate = 1 / (1 + np.exp(-np.maximum(y.mean(1) @ p["squeeze"], 0) @ p["excite"]))[:, None]
        expected.append(gate.mean())
        x = x + y * gate
    values = [float(means[gate]) for several in found.values() for gate in several]
    np.testing.assert_allclose(values, expected, rtol=1e-4)


@pytest.mark.parametrize("remat", [False, True])
def test_measures_every_turn_of_a_scan(remat: bool) -> None:
    turn = lambda x, layer: (excited(layer, x), None)  # noqa: E731
    turn = jax.checkpoint(turn) if remat else turn
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *PARAMS)
    scanned = traced(lambda p, x: jax.lax.scan(turn, x, p)[0], stacked, TOKENS)
    looped = traced(stack(excited), PARAMS, TOKENS)
    (one,) = gate_values(scanned, gates(scanned)).values()
    expected = [*gate_values(looped, gates(looped)).values()]
    np.testing.assert_allclose(one, jnp.stack(expected), rtol=1e-5)


def test_gates_of_convolutions() -> None:
    def block(p: Any, x: Any) -> Any:
        y = conv(jax.nn.relu(conv(x, p["a"])), p["b"])
        gate = jax.nn.sigmoid(y.mean((1, 2), keepdims=True) @ p["gate"])
        return x + y * gate

    params = COUNT * [{"a": draw(0, 3, 3, N, N), "b": draw(1, 3, 3, N, N), "gate": draw(2, N, N)}]
    program = traced(stack(block), params, draw(3, 2, 8, 8, N))
    assert [str(path) for path in gates(program)] == [f"{i}/b" for i in range(COUNT)]
    assert all(0 < float(x) < 1 for x in gate_values(program, gates(program)).values())
