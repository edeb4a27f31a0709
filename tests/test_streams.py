"""Streams and branches: `residual_factors` gives equivalent spellings of a network one result."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

import jaxnorm as jn
from tests.residual_networks import (
    ATTENTION,
    INDICES,
    KERNEL,
    MLP,
    ONE,
    ROWS,
    TOKENS,
    N,
    attend,
    conv,
    mlp,
    named,
    normed,
    shape,
    stack,
)
from tests.trees import by_path

EXPERTS, STEPS = 4, 5
COUNT = 3


class Spelling(NamedTuple):
    """Network, its parameters and inputs, and the parameters that start streams."""

    apply: Callable[..., Any]
    params: Any
    inputs: tuple[Any, ...] = (TOKENS,)
    as_inputs: tuple[str, ...] = ()


def factors_of(spelling: Spelling) -> dict[str, float]:
    """Factors that are not 1, without any warning."""
    apply, params, inputs, as_inputs = spelling
    standard = jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard")
    with standard[0], standard[1], warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = jn.residual_factors(jn.read(apply, params, *inputs, as_inputs=as_inputs))
    return {path: factor for path, factor in by_path(tree).items() if factor != 1}


def blocks(block: Callable[..., Any], params: Any, count: int = COUNT) -> Spelling:
    return Spelling(stack(block), {"stem": shape(), "blocks": count * [params]})


def every(factor: float, *names: str, prefix: str = "blocks/") -> dict[str, float]:
    return {f"{prefix}{i}/{name}": factor for i in range(COUNT) for name in names}


# Two streams that attend to each other.


def attending(read: Callable[..., Any], in_turn: bool = False) -> Callable[..., Any]:
    def apply(p: Any, x: Any, y: Any) -> Any:
        for layer in p:
            new = x + attend(layer["x"], x, y)
            y = y + attend(layer["y"], y, new if in_turn else x)
            x = new
        return read(x, y)

    return apply


def merging(y_first: bool, swap: bool) -> Callable[..., Any]:
    """Two towers of three blocks whose sum goes through two more."""

    def through(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = x + mlp(layer, x)
        return x

    def apply(p: Any, x: Any, y: Any) -> Any:
        if y_first:
            y, x = through(p["y"], y), through(p["x"], x)
        else:
            x, y = through(p["x"], x), through(p["y"], y)
        return through(p["both"], y + x if swap else x + y)

    return apply


BOTH = COUNT * [{"x": ATTENTION, "y": ATTENTION}]
TOWERS = {"x": 3 * [MLP], "y": 3 * [MLP], "both": 2 * [MLP]}


def two(read: Callable[..., Any], in_turn: bool = False) -> Spelling:
    return Spelling(attending(read, in_turn), BOTH, (TOKENS, shape(2, 7, N)))


# Experts under a gate.


def weights(p: Any, x: Any) -> Any:
    return jax.nn.softmax(x @ p["route"])


def expert(p: Any, x: Any, e: int) -> Any:
    return jax.nn.relu(x @ p["up"][e]) @ p["down"][e]


def outputs(p: Any, x: Any) -> Any:
    hidden = jax.nn.relu(jnp.einsum("btn,enm->btem", x, p["up"]))
    return jnp.einsum("btem,emn->bten", hidden, p["down"])


def added(p: Any, x: Any, start: Any, entry: Callable[..., Any]) -> Any:
    gates = weights(p, x)
    for e in range(EXPERTS):
        start = start + entry(gates, e) * expert(p, x, e)
    return start


def by_scan(p: Any, x: Any, start: Any) -> Any:
    def turn(y: Any, layer: Any) -> Any:
        gate, up, down = layer
        return y + gate[..., None] * (jax.nn.relu(x @ up) @ down), None

    gates = jnp.moveaxis(weights(p, x), -1, 0)
    return jax.lax.scan(turn, start, (gates, p["up"], p["down"]))[0]


def top_one(p: Any, x: Any) -> Any:
    gates = jax.nn.one_hot(jnp.argmax(x @ p["route"], -1), EXPERTS)
    return x + sum(gates[..., e, None] * expert(p, x, e) for e in range(EXPERTS))


def weighted_late(p: Any, x: Any) -> Any:
    hidden = jax.nn.relu(jnp.einsum("btn,enm->btem", x, p["up"])) * weights(p, x)[..., None]
    return x + jnp.einsum("btem,emn->btn", hidden, p["down"])


def stacked(p: Any, x: Any) -> Any:
    hidden = jnp.stack([expert(p, x, e) for e in range(EXPERTS)], 2)
    return x + (weights(p, x)[..., None] * hidden).sum(2)


def mapped(p: Any, x: Any) -> Any:
    hidden = jax.vmap(lambda up, down: jax.nn.relu(x @ up) @ down)(p["up"], p["down"])
    return x + jnp.einsum("bte,ebtn->btn", weights(p, x), hidden)


def top_two(p: Any, x: Any) -> Any:
    gates, chosen = jax.lax.top_k(weights(p, x), 2)
    return x + (gates[..., None] * jnp.take_along_axis(outputs(p, x), chosen[..., None], 2)).sum(2)


def by_index(p: Any, x: Any) -> Any:
    index = jnp.argmax(x @ p["route"], -1)[..., None]
    return x + sum(jnp.where(index == e, expert(p, x, e), 0.0) for e in range(EXPERTS))


def ragged(p: Any, x: Any) -> Any:
    """Rows in the order of their experts."""
    rows = x.reshape(-1, N)
    gates = weights(p, rows)
    index = jnp.argmax(gates, -1)
    order, sizes = jnp.argsort(index), jnp.bincount(index, length=EXPERTS)
    hidden = jax.nn.relu(jax.lax.ragged_dot(rows[order], p["up"], sizes))
    results = jax.lax.ragged_dot(hidden, p["down"], sizes)
    placed = jnp.zeros(rows.shape).at[order].set(results) * gates.max(-1, keepdims=True)
    return x + placed.reshape(x.shape)


def of_two(p: Any, x: Any) -> Any:
    """Mixture of two, the second under 1 - g."""
    gate = jax.nn.sigmoid(x @ p["route"][:, :1])
    return x + (gate * expert(p, x, 0) + (1 - gate) * expert(p, x, 1))


def by_slots(p: Any, x: Any) -> Any:
    """Every expert reads a mean of the tokens, and every token a mean of the experts."""
    scores = x @ p["route"]
    slots = jnp.einsum("bte,btn->ben", jax.nn.softmax(scores, 1), x)
    results = jnp.stack([expert(p, slots[:, e], e) for e in range(EXPERTS)], 1)
    return x + jnp.einsum("bte,ben->btn", jax.nn.softmax(scores), results)


def by_experts(p: Any, x: Any) -> Any:
    """Every expert chooses two tokens."""
    gates, chosen = jax.lax.top_k(jnp.swapaxes(weights(p, x), 1, 2), 2)
    places = jax.nn.one_hot(chosen, x.shape[1])
    tokens = jnp.einsum("bect,btn->becn", places, x)
    hidden = jax.nn.relu(jnp.einsum("becn,enm->becm", tokens, p["up"]))
    results = jnp.einsum("becm,emn->becn", hidden, p["down"]) * gates[..., None]
    return x + jnp.einsum("bect,becn->btn", places, results)


def index(g: Any, e: int) -> Any:
    return g[..., e, None]


def keep(g: Any, e: int) -> Any:
    return g[..., e : e + 1]


MIXED = {
    "route": shape(N, EXPERTS),
    "up": shape(EXPERTS, N, N),
    "down": shape(EXPERTS, N, N),
}

# Adapters, which add nothing as long as their second matrix is zero.

ADAPTED = named("up down") | {"a": shape(N, 2), "b": shape(2, N)}


def adapted(p: Any, x: Any, last: bool, order: int = 1, alpha: float = 2.0) -> Any:
    def product(w: Any, h: Any) -> Any:
        terms = [h @ w, (h @ p["a"] @ p["b"]) * alpha]
        return terms[0] + terms[1] if order > 0 else terms[1] + terms[0]

    if last:
        return x + product(p["down"], jax.nn.relu(x @ p["up"]))
    return x + jax.nn.relu(product(p["up"], x)) @ p["down"]


def drawn(params: Any) -> Any:
    return jax.tree.map(lambda x: jnp.ones(x.shape), params)


ZERO = drawn(ADAPTED) | {"b": jnp.zeros((2, N))}

# State-space blocks.


def mamba(p: Any, x: Any, scan: bool) -> Any:
    u, z = jax.nn.silu(conv(x @ p["in"], p["conv"], feature_group_count=N)), x @ p["z"]
    parts = u, jax.nn.softplus(u @ p["dt"]), u @ p["b"], u @ p["c"]

    def step(h: Any, parts: Any) -> Any:
        u, dt, b, c = parts
        h = jnp.exp(-dt[..., None] * jnp.exp(p["a"])) * h + (dt * u)[..., None] * b[:, None]
        return h, (h * c[:, None]).sum(-1)

    h = jnp.zeros((len(x), N, 3))
    if scan:
        steps = jax.tree.map(lambda part: jnp.moveaxis(part, 1, 0), parts)
        y = jnp.moveaxis(jax.lax.scan(step, h, steps)[1], 0, 1)
    else:
        ys = []
        for t in range(STEPS):
            h, y = step(h, [part[:, t] for part in parts])
            ys.append(y)
        y = jnp.stack(ys, 1)
    return x + ((y + p["d"] * u) * jax.nn.silu(z)) @ p["out"]


MAMBA = named("in z dt out") | {
    "conv": shape(3, 1, N),
    **named("a b c", N, 3),
    "d": shape(N),
}


def over_layers(block: Callable[..., Any], params: Any, remat: bool = False) -> Spelling:
    """Blocks of one stack of parameters, by a scan."""
    params = jax.tree.map(lambda x: shape(COUNT, *x.shape), params)
    turn = lambda x, layer: (block(layer, x), None)  # noqa: E731
    turn = jax.checkpoint(turn) if remat else turn

    def apply(p: Any, x: Any) -> Any:
        return jax.lax.scan(turn, x @ p["stem"], p["blocks"])[0]

    return Spelling(apply, {"stem": shape(), "blocks": params})


# Images.


def at(size: int) -> tuple[Any, ...]:
    return (shape(2, size, size, 1),)


def residual(p: Any, x: Any, stride: int = 1) -> Any:
    y = conv(jax.nn.relu(conv(x, p["a"], stride)), p["b"])
    return jax.nn.relu(y + (conv(x, p["short"], stride) if "short" in p else x))


def wide(inputs: int, units: int, short: bool = True) -> dict[str, Any]:
    params = {"a": shape(3, 3, inputs, units), "b": shape(3, 3, units, units)}
    return params | ({"short": shape(1, 1, inputs, units)} if short else {})


def pooled(x: Any) -> Any:
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def repeated(x: Any) -> Any:
    return jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)


def transposed(x: Any, w: Any) -> Any:
    return jax.lax.conv_transpose(x, w, (2, 2), "SAME")


def resized(x: Any, w: Any) -> Any:
    rows, height, width, channels = x.shape
    return conv(jax.image.resize(x, (rows, 2 * height, 2 * width, channels), "linear"), w)


def shuffled(x: Any, w: Any) -> Any:
    rows, height, width, _ = x.shape
    y = conv(x, jnp.concatenate(4 * [w], -1)).reshape(rows, height, width, 2, 2, -1)
    return y.transpose(0, 1, 3, 2, 4, 5).reshape(rows, 2 * height, 2 * width, -1)


def unet(up: Callable[..., Any], swap: bool = False) -> Callable[..., Any]:
    def apply(p: Any, x: Any) -> Any:
        one = residual(p["one"], x)
        two = residual(p["two"], pooled(one))
        low = residual(p["low"], pooled(two))
        for skip, name in ((two, "2"), (one, "1")):
            y = up(low, p["up" + name])
            low = residual(p["out" + name], skip + y if swap else y + skip)
        return low @ p["head"]

    return apply


def of_unet(short: bool) -> dict[str, Any]:
    return {
        "one": wide(1, 4),
        "two": wide(4, 8),
        "low": wide(8, 16),
        "up2": shape(2, 2, 16, 8),
        "out2": wide(8, 8, short),
        "up1": shape(2, 2, 8, 4),
        "out1": wide(4, 4, short),
        "head": shape(4, 3),
    }


def resolutions(read: Callable[..., Any], swap: bool = False) -> Callable[..., Any]:
    """Streams of two resolutions, which are added to each other after every stage."""

    def apply(p: Any, x: Any) -> Any:
        x = conv(x, p["stem"])
        y = conv(x, p["down"], 2)
        for layer in p["stages"]:
            x, y = residual(layer["x"], x), residual(layer["y"], y)
            up, down = repeated(y @ layer["up"]), conv(x, layer["down"], 2)
            sums = (up + x, down + y) if swap else (x + up, y + down)
            x, y = map(jax.nn.relu, sums)
        return read(x, y)

    return apply


def mean(x: Any) -> Any:
    return x.mean((1, 2))


def linked(p: Any, x: Any) -> Any:
    """Decoder by interpolation after a strided convolution, which starts a stream."""
    x = skip = residual(p["b"], residual(p["a"], conv(x, p["stem"])))
    x = residual(p["d"], residual(p["c"], conv(x, p["down"], 2)))
    return residual(p["e"], conv(repeated(x), p["up"]) + skip)


def option_a(p: Any, x: Any) -> Any:
    """Shortcuts that take every second pixel and add channels of zeros."""
    x = conv(x, p["stem"])
    for i, layer in enumerate(p["blocks"]):
        stride = 2 if i else 1
        y = conv(jax.nn.relu(conv(x, layer["a"], stride)), layer["b"])
        shortcut = x[:, ::stride, ::stride]
        channels = (*(3 * [(0, 0)]), (0, y.shape[-1] - x.shape[-1]))
        x = jax.nn.relu(y + jnp.pad(shortcut, channels))
    return x


OPTION_A = {
    "stem": shape(3, 3, 1, 4),
    "blocks": [wide(4, 4, False), wide(4, 8, False), wide(8, 16, False)],
}


# A shortcut of several kernels in a row, as GhostNet's.


def several(shortcut: Callable[..., Any], last: bool = False) -> Spelling:
    """Blocks of which the first one's shortcut has kernels; perhaps as the last operand."""

    def apply(p: Any, x: Any) -> Any:
        x = x @ p["stem"]
        for i, layer in enumerate(p["blocks"]):
            y = conv(jax.nn.relu(conv(x, layer["a"])), layer["b"])
            x = x if i else shortcut(layer, x)
            x = y + x if last else x + y
        return x

    of_shortcut = {"depthwise": shape(3, 3, 1, N), "pointwise": shape(N, N), "bias": shape(N)}
    layer = {"a": shape(3, 3, N, N), "b": shape(3, 3, N, N)} | of_shortcut
    params = {"stem": shape(), "blocks": COUNT * [layer]}
    return Spelling(apply, params, (shape(2, 8, 8, N),))


def depthwise(p: Any, x: Any) -> Any:
    return conv(x, p["depthwise"], feature_group_count=N) + p["bias"]


def in_parts(p: Any, x: Any) -> Any:
    """Depthwise kernel that is applied to each half of the channels."""
    halves = zip(jnp.split(x, 2, -1), jnp.split(p["depthwise"], 2, -1), strict=True)
    return jnp.concatenate([conv(x, w, feature_group_count=N // 2) for x, w in halves], -1)


def averaged(x: Any) -> Any:
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9


def pyramid(p: Any, x: Any, block: bool, down: bool = False) -> list[Any]:
    """Pyramid on a backbone with or without residual blocks; perhaps with a second way down."""
    levels = []
    for layer in p["stages"]:
        x = jax.nn.relu(conv(x, layer["down"], 2))
        x = residual(layer, x) if block else jax.nn.relu(conv(x, layer["a"]))
        levels.append(x)
    y, *ys = [conv(x, w) for x, w in zip(levels[::-1], p["lateral"], strict=True)]
    results = [y]
    for lateral in ys:
        y = lateral + repeated(y)
        results.append(y)
    if down:
        for level, w in zip(results[-2::-1], p["back"], strict=True):
            y = level + conv(y, w, 2)
            results.append(y)
    return results


RESOLUTIONS = {
    "stem": shape(3, 3, 1, N),
    "down": KERNEL,
    "stages": 2 * [{name: wide(N, N, False) for name in "xy"} | {"up": shape(), "down": KERNEL}],
}
PYRAMID = {
    "stages": [{"down": shape(3, 3, inputs, N), "a": KERNEL, "b": KERNEL} for inputs in (1, N, N)],
    "lateral": 3 * [ONE],
    "back": 2 * [KERNEL],
    "head": COUNT * [{"a": KERNEL, "b": KERNEL}],
}


def with_head(p: Any, x: Any) -> Any:
    y = pyramid(p, x, False)[-1]
    for layer in p["head"]:
        y = residual(layer, y)
    return y


# Recurrent layers, messages and biases that join no stream.


def recurrent(p: Any, x: Any, scan: bool = True) -> Any:
    h = jnp.tanh(x.mean(1) @ p["first"])
    step = lambda h, x: (jnp.tanh(x @ p["w"] + h @ p["u"]), None)  # noqa: E731
    if scan:
        return jax.lax.scan(step, h, jnp.swapaxes(x, 0, 1))[0]
    for t in range(STEPS):
        h, _ = step(h, x[:, t])
    return h


def settled(p: Any, x: Any) -> Any:
    """Fixed point of a layer that sees its input at every turn."""
    h = jnp.tanh(x @ p["first"])
    for _ in range(STEPS):
        h = jnp.tanh(x @ p["w"] + h @ p["u"])
    return h


def messages(p: Any, x: Any, sources: Any, targets: Any) -> Any:
    for layer in p:
        sums = jax.ops.segment_sum(jax.nn.relu(x[sources] @ layer["a"]), targets, 3)
        x = jax.nn.relu(x @ layer["w"] + sums @ layer["b"])
    return x


def with_context(p: Any, x: Any) -> Any:
    bias = jax.nn.relu(x.mean(1) @ p["a"]) @ p["b"]
    return jax.nn.relu(x @ p["w"] + bias[:, None])


RECURRENT, CONTEXT = named("first w u out"), named("a b w out")

# Attention with tables, values of the first layer, latents and masks.


def attending_to(p: Any, x: Any, bias: Callable[..., Any]) -> Any:
    q, k, v = (normed(x) @ p[name] for name in "qkv")
    scores = q @ jnp.swapaxes(k, -1, -2) + bias(q)
    return x + (jax.nn.softmax(scores) @ v) @ p["out"]


def positions(p: Any, x: Any) -> Any:
    distances = jnp.arange(STEPS)[:, None] - jnp.arange(STEPS) + STEPS - 1
    return attending_to(p, x, lambda q: jnp.einsum("btn,tsn->bts", q, p["table"][distances]))


def indexed(p: Any, x: Any, distances: Any) -> Any:
    for layer in p:
        x = attending_to(layer, x, lambda q, layer=layer: layer["numbers"][distances])
    return x


def first_values(share: float) -> Callable[..., Any]:
    def apply(p: Any, x: Any) -> Any:
        first = None
        for layer in p:
            q, k, v = (normed(x) @ layer[name] for name in "qkv")
            first = v if first is None else first
            v = share * v + (1 - share) * first
            x = x + (jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2)) @ v) @ layer["out"]
        return x

    return apply


def residual_scores(p: Any, x: Any) -> Any:
    scores: Any = 0.0
    for layer in p:
        q, k, v = (normed(x) @ layer[name] for name in "qkv")
        scores = q @ jnp.swapaxes(k, -1, -2) + scores
        x = x + (jax.nn.softmax(scores) @ v) @ layer["out"]
    return x


def latents(p: Any, x: Any) -> Any:
    z = jnp.broadcast_to(p["z"], (len(x), *p["z"].shape))
    for layer in p["blocks"]:
        z = z + attend(layer, normed(z), x)
        z = z + mlp(layer, normed(z))
    return z.mean(1)


def masked(p: Any, x: Any, mask: Any) -> Any:
    for layer in p:
        x = mask * x + mask * mlp(layer, x)
    return x


def chosen(p: Any, x: Any, mask: Any) -> Any:
    """Recurrent layer that keeps its state at masked steps."""
    h = jnp.tanh(x[:, 0] @ p["first"])
    for t in range(STEPS):
        keep = mask[:, t]
        z = jax.nn.sigmoid(x[:, t] @ p["w"] + h @ p["u"])
        new = z * h + (1 - z) * jnp.tanh(x[:, t] @ p["out"])
        h = keep * new + (1 - keep) * h
    return h


TABLES = drawn(ATTENTION) | {"table": jnp.zeros((2 * STEPS - 1, N)), "numbers": jnp.zeros(9)}
MASK = shape(2, STEPS, 1)
INTEGERS = jax.ShapeDtypeStruct((STEPS, STEPS), jnp.int32)
ROOT = COUNT**-0.5
UNET = dict.fromkeys(("one/b", "two/b", "low/b", "out2/b", "out1/b"), 5**-0.5)
LINKED = {"a/b": 3**-0.5, "b/b": 3**-0.5, "e/b": 3**-0.5, "c/b": 2**-0.5, "d/b": 2**-0.5}

#: Equivalent spellings, or networks with the same branches, and their factors.
SPELLINGS: dict[str, tuple[dict[str, float], dict[str, Spelling]]] = {
    "streams that attend to each other": (
        every(ROOT, "x/out", "y/out", prefix=""),
        {
            "first rows": two(lambda x, y: x[:, 0] + y[:, 0]),
            "means": two(lambda x, y: x.mean(1) + y.mean(1)),
            "sums": two(lambda x, y: x.sum(1) + y.sum(1)),
            "the other first": two(lambda x, y: y.mean(1) + x.mean(1)),
            "in turn": two(lambda x, y: x.mean(1) + y.mean(1), in_turn=True),
            "normalized": two(lambda x, y: normed(x).mean(1) + normed(y).mean(1)),
            "concatenated": two(lambda x, y: jnp.concatenate([x.mean(1), y.mean(1)], -1)),
            "a difference": two(lambda x, y: x.mean(1) - y.mean(1)),
            "other arguments": Spelling(
                lambda p, y, x: attending(lambda x, y: x.mean(1) + y.mean(1))(p, x, y),
                BOTH,
                (shape(2, 7, N), TOKENS),
            ),
        },
    ),
    "towers that merge and go on": (
        {
            f"{name}/{i}/down": 5**-0.5
            for name, layers in TOWERS.items()
            for i in range(len(layers))
        },
        {
            f"{first} first, {order}": Spelling(
                merging(first == "y", order == "y + x"), TOWERS, (TOKENS, TOKENS)
            )
            for first in "xy"
            for order in ("x + y", "y + x")
        },
    ),
    "streams of two resolutions": (
        {f"stages/{i}/{name}/b": 2**-0.5 for i in range(2) for name in "xy"},
        {
            name: Spelling(resolutions(read, swap), RESOLUTIONS, at(8))
            for name, read, swap in (
                ("means", lambda x, y: mean(x) + mean(y), False),
                ("the other first", lambda x, y: mean(y) + mean(x), True),
                ("sums", lambda x, y: x.sum((1, 2)) + y.sum((1, 2)), False),
                ("one resolution", lambda x, y: x + repeated(y), True),
                ("concatenated", lambda x, y: jnp.concatenate([mean(x), mean(y)], -1), False),
            )
        },
    ),
    "means": (
        every(ROOT, "down"),
        {
            "before the last kernel": blocks(
                lambda p, x: x + jax.nn.relu(x @ p["up"]).mean(1, keepdims=True) @ p["down"], MLP
            ),
            "after it": blocks(lambda p, x: x + mlp(p, x).mean(1, keepdims=True), MLP),
            "by hand": blocks(lambda p, x: x + (mlp(p, x).sum(1) * (1 / STEPS))[:, None], MLP),
        },
    ),
    "experts": (
        every(ROOT, "down"),
        {
            "one": blocks(lambda p, x: x + expert(p, x, 0), MIXED),
            "a loop": blocks(lambda p, x: x + added(p, x, jnp.zeros(x.shape), index), MIXED),
            "a loop onto the stream": blocks(lambda p, x: added(p, x, x, index), MIXED),
            "gates with their axis": blocks(lambda p, x: added(p, x, x, keep), MIXED),
            "split gates": blocks(
                lambda p, x: added(p, x, x, lambda g, e: jnp.split(g, EXPERTS, -1)[e]), MIXED
            ),
            "one-hot gates": blocks(top_one, MIXED),
            "two for each row": blocks(top_two, MIXED),
            "chosen by an index": blocks(by_index, MIXED),
            "slots": blocks(by_slots, MIXED),
            "tokens of an expert's choice": blocks(by_experts, MIXED),
            "ragged": blocks(ragged, MIXED),
            "two, of one gate": blocks(of_two, MIXED),
            "an einsum": blocks(
                lambda p, x: x + jnp.einsum("bte,bten->btn", weights(p, x), outputs(p, x)), MIXED
            ),
            "a sum": blocks(
                lambda p, x: x + (weights(p, x)[..., None] * outputs(p, x)).sum(2), MIXED
            ),
            "gated before the last kernel": blocks(weighted_late, MIXED),
            "stacked": blocks(stacked, MIXED),
            "mapped": blocks(mapped, MIXED),
            "a scan": blocks(lambda p, x: x + by_scan(p, x, jnp.zeros(x.shape)), MIXED),
            "a scan onto the stream": blocks(lambda p, x: by_scan(p, x, x), MIXED),
            "rematerialized": blocks(jax.checkpoint(lambda p, x: added(p, x, x, index)), MIXED),
        },
    ),
    "adapters": (
        every(ROOT, "down"),
        {
            "none": blocks(lambda p, x: x + mlp(p, x), ADAPTED),
            "of zero beside the first": blocks(lambda p, x: adapted(p, x, False), ZERO)._replace(
                params={"stem": drawn(shape()), "blocks": COUNT * [ZERO]}
            ),
            "of zero beside the last": blocks(lambda p, x: adapted(p, x, True), ZERO)._replace(
                params={"stem": drawn(shape()), "blocks": COUNT * [ZERO]}
            ),
            "beside the first": blocks(lambda p, x: adapted(p, x, False), ADAPTED),
            "the adapter first": blocks(lambda p, x: adapted(p, x, False, -1), ADAPTED),
            "scanned": blocks(jax.checkpoint(lambda p, x: adapted(p, x, False)), ADAPTED),
            "without activation": blocks(
                lambda p, x: x + (x @ p["up"] + x @ p["a"] @ p["b"]) @ p["down"], ADAPTED
            ),
        },
    ),
    "a network of adapters": (
        {},
        {
            "a loop": Spelling(
                lambda p, x: jax.nn.relu(x @ p["up"] + x @ p["a"] @ p["b"]) @ p["down"], ADAPTED
            )
        },
    ),
    "state-space blocks": (
        every(ROOT, "out"),
        {
            "a scan": blocks(lambda p, x: mamba(p, x, True), MAMBA),
            "a loop": blocks(lambda p, x: mamba(p, x, False), MAMBA),
            "rematerialized": blocks(jax.checkpoint(lambda p, x: mamba(p, x, True)), MAMBA),
        },
    ),
    "state-space blocks, scanned": (
        {"blocks/out": ROOT},
        {
            "a scan": over_layers(lambda p, x: mamba(p, x, True), MAMBA),
            "a loop": over_layers(lambda p, x: mamba(p, x, False), MAMBA),
            "rematerialized": over_layers(lambda p, x: mamba(p, x, True), MAMBA, remat=True),
        },
    ),
    "a residual U-Net": (
        UNET,
        {
            f"{name}, {size} pixels": Spelling(unet(up, swap), of_unet(short), at(size))
            for size in (4, 8, 16)
            for name, up, short, swap in (
                ("transposed convolutions", transposed, False, False),
                ("a kernel in every shortcut", transposed, True, False),
                ("skips first", transposed, True, True),
                ("interpolated", resized, False, True),
                ("shuffled", shuffled, False, False),
            )
        },
    ),
    "a decoder without a shortcut to it": (
        LINKED,
        {
            f"{size} pixels": Spelling(
                linked,
                {name: wide(4, 4, False) for name in "abe"}
                | {name: wide(8, 8, False) for name in "cd"}
                | {
                    "stem": shape(3, 3, 1, 4),
                    "down": shape(3, 3, 4, 8),
                    "up": shape(3, 3, 8, 4),
                },
                at(size),
            )
            for size in (4, 16)
        },
    ),
    "shortcuts by every second pixel": (
        every(ROOT, "b"),
        {f"{size} pixels": Spelling(option_a, OPTION_A, at(size)) for size in (2, 4, 8, 16)},
    ),
    "shortcuts of several kernels": (
        every(ROOT, "b"),
        {
            "one": several(lambda p, x: x @ p["pointwise"]),
            "two": several(lambda p, x: depthwise(p, x) @ p["pointwise"]),
            "two, the other way round": several(lambda p, x: depthwise(p, x @ p["pointwise"])),
            "the last operand": several(lambda p, x: depthwise(p, x) @ p["pointwise"], last=True),
            "an einsum": several(
                lambda p, x: jnp.einsum("bhwi,io->bhwo", depthwise(p, x), p["pointwise"])
            ),
            "averaged first": several(lambda p, x: depthwise(p, averaged(x)) @ p["pointwise"]),
            "in parts": several(lambda p, x: in_parts(p, x) @ p["pointwise"]),
            "rematerialized": several(
                jax.checkpoint(lambda p, x: depthwise(p, x) @ p["pointwise"])
            ),
        },
    ),
    "pyramids": (
        {},
        {
            "plain": Spelling(lambda p, x: pyramid(p, x, False), PYRAMID, at(16)),
            "residual": Spelling(lambda p, x: pyramid(p, x, True), PYRAMID, at(16)),
            "down again": Spelling(lambda p, x: pyramid(p, x, True, True), PYRAMID, at(16)),
        },
    ),
    "a pyramid and a residual head": (
        every(ROOT, "b", prefix="head/"),
        {f"{size} pixels": Spelling(with_head, PYRAMID, at(size)) for size in (8, 32)},
    ),
    "no stream": (
        {},
        {
            "a recurrent layer, scanned": Spelling(recurrent, RECURRENT),
            "a recurrent layer, a loop": Spelling(lambda p, x: recurrent(p, x, False), RECURRENT),
            "a fixed point": Spelling(settled, RECURRENT),
            "a masked state": Spelling(chosen, RECURRENT, (TOKENS, MASK)),
            "messages": Spelling(messages, COUNT * [named("a b w")], (ROWS, INDICES, INDICES)),
            "a context's bias": blocks(with_context, CONTEXT),
        },
    ),
    "inside of branches": (
        every(ROOT, "out"),
        {
            "a recurrent layer": blocks(
                lambda p, x: x + (recurrent(p, x) @ p["out"])[:, None], RECURRENT
            ),
            "a loop": blocks(
                lambda p, x: x + (recurrent(p, x, False) @ p["out"])[:, None], RECURRENT
            ),
            "a fixed point": blocks(lambda p, x: x + settled(p, x) @ p["out"], RECURRENT),
            "a context's bias": blocks(lambda p, x: x + with_context(p, x) @ p["out"], CONTEXT),
            "a table of positions": blocks(positions, TABLES)._replace(
                params={"stem": drawn(shape()), "blocks": COUNT * [TABLES]}
            ),
        },
    ),
    "attention": (
        every(ROOT, "out", prefix=""),
        {
            "positions": Spelling(indexed, COUNT * [TABLES], (TOKENS, INTEGERS)),
            "positions first": Spelling(
                lambda p, i, x: indexed(p, x, i), COUNT * [TABLES], (INTEGERS, TOKENS)
            ),
            "values of the first layer": Spelling(first_values(0.5), COUNT * [ATTENTION]),
            "less of them": Spelling(first_values(0.9), COUNT * [ATTENTION]),
            "scores of the layer before": Spelling(residual_scores, COUNT * [ATTENTION]),
        },
    ),
    "latents": (
        every((2 * COUNT) ** -0.5, "out", "down"),
        {
            "learned": Spelling(
                latents,
                {"z": shape(3, N), "blocks": COUNT * [ATTENTION | MLP]},
                as_inputs=("^z$",),
            ),
            "given": Spelling(
                lambda p, x, z: latents(p | {"z": z}, x),
                {"blocks": COUNT * [ATTENTION | MLP]},
                (TOKENS, shape(3, N)),
            ),
        },
    ),
    "a mask": (
        every(ROOT, "down", prefix=""),
        {
            "last": Spelling(masked, COUNT * [MLP], (TOKENS, MASK)),
            "first": Spelling(lambda p, m, x: masked(p, x, m), COUNT * [MLP], (MASK, TOKENS)),
        },
    ),
}
ROWS_OF_TABLE = [(network, name) for network, (_, table) in SPELLINGS.items() for name in table]


@pytest.mark.parametrize(("network", "name"), ROWS_OF_TABLE)
def test_equivalent_spellings_have_the_same_factors(network: str, name: str) -> None:
    expected, spellings = SPELLINGS[network]
    assert factors_of(spellings[name]) == pytest.approx(expected)


def test_an_adapter_beside_the_last_kernel_is_scaled_with_it() -> None:
    """Both end the branch, which is one."""
    spelling = blocks(lambda p, x: adapted(p, x, True), ADAPTED)
    assert factors_of(spelling) == pytest.approx(every(ROOT, "down", "b"))


def test_shared_experts_are_a_branch_of_their_own() -> None:
    def block(p: Any, x: Any) -> Any:
        return x + mlp(p["shared"], x) + added(p, x, jnp.zeros(x.shape), index)

    factors = factors_of(blocks(block, MIXED | {"shared": MLP}))
    assert factors == pytest.approx(every((2 * COUNT) ** -0.5, "down", "shared/down"))


def test_gates_that_are_parts_of_one_product_are_no_router() -> None:
    """Two branches side by side, under gates per feature of one kernel."""

    def block(p: Any, x: Any) -> Any:
        one, two = jnp.split(x.mean(1, keepdims=True) @ p["modulation"], 2, -1)
        return x + one * attend(p, normed(x), normed(x)) + two * mlp(p, normed(x))

    params = ATTENTION | MLP | {"modulation": shape(N, 2 * N)}
    factors = factors_of(blocks(block, params))
    assert factors == pytest.approx(every((2 * COUNT) ** -0.5, "out", "down"))


@pytest.mark.parametrize("parallel", [False, True])
def test_branches_under_gates_of_their_own_count_each(parallel: bool) -> None:
    """Masks of stochastic depth, one per block, are entries of one array; blocks are no experts."""

    def apply(p: Any, x: Any, masks: Any) -> Any:
        for i, layer in enumerate(p):
            x = x + masks[:, i, None, None] * mlp(layer, x)
            if parallel:
                gates = [jax.nn.sigmoid(x @ layer[name]) for name in "cd"]
                x = x + gates[0] * (x @ layer["a"]) + gates[1] * (x @ layer["b"])
        return x

    params = COUNT * [MLP | named("a b") | named("c d", N, 1)]
    names = ("down", "a", "b") if parallel else ("down",)
    factors = factors_of(Spelling(apply, params, (TOKENS, shape(2, COUNT))))
    assert factors == pytest.approx(every((COUNT * len(names)) ** -0.5, *names, prefix=""))
