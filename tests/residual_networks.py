"""Networks with known residual branches, as functions of plain parameters given as shapes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

N = 4


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes or (N, N), jnp.float32)


def named(names: str, *sizes: int) -> dict[str, Any]:
    return {name: shape(*sizes) for name in names.split()}


ROWS, TOKENS, IMAGES = shape(3, N), shape(2, 5, N), shape(2, 8, 8, N)
MLP = named("up down")


class Case(NamedTuple):
    """Network, its parameters and inputs, and the factors that are not 1."""

    apply: Callable[..., Any]
    params: Any
    inputs: tuple[Any, ...]
    factors: dict[str, float]


def mlp(p: Any, x: Any) -> Any:
    return jax.nn.relu(x @ p["up"]) @ p["down"]


def normed(x: Any, scale: Any = 1.0) -> Any:
    centered = x - x.mean(-1, keepdims=True)
    return centered * (jax.lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-6) * scale)


def batch_normed(x: Any, scale: Any = 1.0) -> Any:
    axes = tuple(range(x.ndim - 1))
    return (x - x.mean(axes)) * (jax.lax.rsqrt(x.var(axes) + 1e-5) * scale)


def conv(x: Any, w: Any, stride: int = 1, **options: Any) -> Any:
    strides = (stride,) * (x.ndim - 2)
    numbers = ("NHWC", "HWIO", "NHWC") if x.ndim == 4 else ("NWC", "WIO", "NWC")
    return jax.lax.conv_general_dilated(
        x, w, strides, options.pop("padding", "SAME"), dimension_numbers=numbers, **options
    )


def attend(p: Any, x: Any, memory: Any) -> Any:
    weights = jax.nn.softmax((x @ p["q"]) @ jnp.swapaxes(memory @ p["k"], -1, -2) / 2.0)
    return weights @ (memory @ p["v"]) @ p["out"]


def attend_fused(p: Any, x: Any, split: Any) -> Any:
    """Attention whose queries, keys and values are slices of one product."""
    q, k, v = split(jnp.einsum("btn,nck->btck", x, p["qkv"]))
    return (jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2)) @ v) @ p["out"]


def stack(block: Callable[..., Any]) -> Callable[..., Any]:
    """Network of a stem ``x @ stem`` and residual blocks."""

    def apply(p: Any, x: Any, *rest: Any) -> Any:
        x = x @ p["stem"]
        for layer in p["blocks"]:
            x = block(layer, x, *rest)
        return x

    return apply


def blocks(apply: Any, names: str, factors: dict[str, float], count: int = 4, **other: Any) -> Case:
    """Case of a `stack`; ``factors`` are those of the parameters of a block."""
    params = {"stem": shape(), "blocks": [named(names) | other for _ in range(count)]}
    paths = {f"blocks/{i}/{name}": f for i in range(count) for name, f in factors.items()}
    return Case(stack(apply), params, (TOKENS,), paths)


def lstm_step(p: Any, state: Any, x: Any) -> Any:
    h, c = state
    i, f, o, n = jnp.split(x @ p["w"] + h @ p["u"], 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def lstm(p: Any, x: Any) -> Any:
    """Hidden states of all steps, (rows, steps, units), by a scan."""
    start = (jnp.zeros((x.shape[0], N)),) * 2
    hidden = jax.lax.scan(lambda s, x: lstm_step(p, s, x), start, jnp.swapaxes(x, 0, 1))[1]
    return jnp.swapaxes(hidden, 0, 1)


def gru(p: Any, x: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        z, r = (jax.nn.sigmoid(x @ p["w" + g] + h @ p["u" + g]) for g in "zr")
        return (1 - z) * jnp.tanh(x @ p["wn"] + (r * h) @ p["un"]) + z * h, None

    return jax.lax.scan(step, jnp.zeros((x.shape[0], N)), jnp.swapaxes(x, 0, 1))[0]


def highway(p: Any, x: Any) -> Any:
    gate = jax.nn.sigmoid(x @ p["gate"])
    return gate * jax.nn.relu(x @ p["up"]) + (1 - gate) * x


def shared(p: Any, x: Any) -> Any:
    for _ in range(4):
        x = x + mlp(p, x)
    return x


def scanned(p: Any, x: Any, remat: bool = False) -> Any:
    turn = lambda x, layer: (x + mlp(layer, x), None)  # noqa: E731
    return jax.lax.scan(jax.checkpoint(turn) if remat else turn, x @ p["stem"], p["layers"])[0]


def indexed(p: Any, x: Any) -> Any:
    turn = lambda i, x: x + mlp({name: w[i] for name, w in p.items()}, x)  # noqa: E731
    return jax.lax.fori_loop(0, 9, turn, x)


def split(p: Any, x: Any) -> Any:
    """Residual sum inside a shard_map whose kernels are split over two devices."""
    mesh, spec = jax.sharding.Mesh(jax.devices()[:2], ("d",)), jax.sharding.PartitionSpec
    specs = ({"up": spec(None, "d"), "down": spec("d")}, spec())
    add = lambda p, x: x + jax.lax.psum(mlp(p, x), "d")  # noqa: E731
    return jax.shard_map(add, mesh=mesh, in_specs=specs, out_specs=spec())(p, x)


def excited(p: Any, x: Any) -> Any:
    y = mlp(p, x)
    gate = jax.nn.sigmoid(jax.nn.relu(y.mean(1) @ p["squeeze"]) @ p["excite"])
    return x + y * gate[:, None]


def parallel(p: Any, x: Any) -> Any:
    y = normed(x)
    return x + attend(p, y, y) + mlp(p, y)


def concatenated(p: Any, x: Any) -> Any:
    return x + jnp.concatenate([x @ p["a"][:, :2], mlp(p, x)[..., 2:]], -1)


def projected(p: Any, x: Any, v2: bool) -> Any:
    """Residual network of two stages, with a projection of stride 2 between them."""
    x = conv(x, p["stem"])
    for layer in p["blocks"]:
        stride = 2 if "short" in layer else 1
        h = jax.nn.relu(batch_normed(x)) if v2 else x
        y = jax.nn.relu(batch_normed(conv(h, layer["a"], stride)))
        y = conv(y, layer["b"])
        y = y if v2 else batch_normed(y, layer["scale"])
        shortcut = conv(h, layer["short"], stride) if "short" in layer else x
        x = y + shortcut if v2 else jax.nn.relu(y + shortcut)
    return x


def convnext(p: Any, x: Any) -> Any:
    for layer in p:
        y = normed(conv(x, layer["depthwise"], feature_group_count=N))
        x = x + layer["scale"] * (jax.nn.gelu(y @ layer["up"]) @ layer["down"])
    return x


def wavenet(p: Any, x: Any) -> Any:
    skips = 0.0
    for i, layer in enumerate(p["blocks"]):
        causal: Any = {"rhs_dilation": (2**i,), "padding": ((2**i, 0),)}
        y = jnp.tanh(conv(x, layer["f"], **causal)) * jax.nn.sigmoid(conv(x, layer["g"], **causal))
        skips = skips + y @ layer["skip"]
        x = x + y @ layer["out"]
    return jax.nn.relu(skips) @ p["head"]


def dropped(p: Any, x: Any, mask: Any) -> Any:
    """Wide residual block with dropout, and stochastic depth per row."""
    y = jnp.where(mask, jax.nn.relu(x @ p["up"]) / 0.7, 0) @ p["down"]
    return x + jnp.where(mask[:, :1, :1], y / 0.9, 0)


def mobile(p: Any, x: Any) -> Any:
    """Two inverted residuals with squeeze-and-excitation; the first changes the shape."""
    for i, layer in enumerate(p):
        y = jax.nn.silu(x @ layer["up"])
        y = jax.nn.silu(conv(y, layer["depthwise"], 2 - min(i, 1), feature_group_count=N))
        y = y * jax.nn.sigmoid(jax.nn.silu(y.mean((1, 2), keepdims=True) @ layer["s"]) @ layer["e"])
        y = batch_normed(y @ layer["down"], layer["scale"])
        x = y if i == 0 else x + y
    return x


def encoder_decoder(p: Any, x: Any, y: Any) -> Any:
    for layer in p["encoder"]:
        x = x + attend(layer, normed(x), normed(x))
        x = x + mlp(layer, normed(x))
    memory = normed(x)
    for layer in p["decoder"]:
        y = y + attend(layer, normed(y), normed(y))
        y = y + attend(layer["cross"], normed(y), memory)
        y = y + mlp(layer, normed(y))
    return y


def embedded(p: Any, tokens: Any) -> Any:
    x = p["table"][tokens] + p["positions"]
    for layer in p["blocks"]:
        x = x + mlp(layer, x)
    return x @ p["table"].T


def diffusion(p: Any, x: Any, time: Any) -> Any:
    """U-Net whose residual blocks add an embedding of the time inside the branch."""

    def block(layer: Any, x: Any) -> Any:
        y = jax.nn.silu(normed(x)) @ layer["a"] + (jax.nn.silu(time) @ layer["time"])[:, None]
        y = jax.nn.silu(normed(y)) @ layer["b"]
        return y + (x @ layer["short"] if "short" in layer else x)

    a = block(p["down"], x @ p["stem"])
    b = block(p["middle"], a[:, ::2] @ p["pool"])
    b = b + attend(p["attention"], normed(b), normed(b))
    return block(p["up"], jnp.concatenate([jnp.repeat(b, 2, 1)[:, :5], a], -1))


def repvgg(p: Any, x: Any) -> Any:
    return jax.nn.relu(conv(x, p["three"]) + conv(x, p["one"]) + x)


def pyramid(p: Any, x: Any) -> Any:
    a = jax.nn.relu(x @ p["a"])
    b = jax.nn.relu(a @ p["b"])
    return a @ p["l0"] + (b @ p["l1"] + jax.nn.relu(b @ p["c"]) @ p["l2"])


def reversible(p: Any, x: Any) -> Any:
    a, b = jnp.split(x, 2, -1)
    for layer in p:
        a = a + mlp(layer["f"], b)
        b = b + mlp(layer["g"], a)
    return jnp.concatenate([a, b], -1)


def messages(p: Any, x: Any, sources: Any, targets: Any) -> Any:
    for layer in p:
        pairs = jnp.concatenate([x[sources], x[targets]], -1)
        sums = jax.ops.segment_sum(jax.nn.relu(pairs @ layer["a"]), targets, 3)
        x = x + sums @ layer["b"]
    return x


def readout(p: Any, x: Any) -> Any:
    """A constant of the classifier after the last sum, as in the muP."""
    return 0.1 * shared({"up": p["up"], "down": p["down"]}, x) @ p["head"]


def recurrent_stack(p: Any, x: Any) -> Any:
    for layer in p:
        x = x + lstm(layer, x) @ layer["out"]
    return x


def standardized(w: Any) -> Any:
    return (w - w.mean(0)) / (w.std(0) + 1e-6)


def of_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Block whose last kernel is a function of parameters."""
    return lambda p, x: x + jax.nn.relu(x @ p["up"]) @ function(p)


def weight_normalized(p: Any) -> Any:
    return p["scale"] * (p["down"] / jnp.linalg.norm(p["down"], axis=0))


KERNEL, ONE = shape(3, 3, N, N), shape(1, 1, N, N)
ATTENTION = named("q k v out")
IDENTITY = {"a": KERNEL, "b": KERNEL, "scale": shape(N)}
STAGES = {
    "stem": KERNEL,
    "blocks": [IDENTITY, IDENTITY, IDENTITY | {"short": ONE}, IDENTITY],
}
LSTM, GRU = named("w u", N, 4 * N), named("wz uz wr ur wn un")
MASK = jax.ShapeDtypeStruct((2, 5, N), jnp.bool_)
INDICES = jax.ShapeDtypeStruct((6,), jnp.int32)


def each(last: str, factor: float, count: int, prefix: str = "") -> dict[str, float]:
    return {f"{prefix}{i}/{name}": factor for i in range(count) for name in last.split()}


def images(apply: Any, params: Any, factors: dict[str, float]) -> Case:
    return Case(apply, params, (IMAGES,), factors)


def of_blocks(block: Any, params: Any, last: str, factor: float) -> Case:
    """Case of four blocks on images, one after another."""

    def apply(p: Any, x: Any) -> Any:
        for layer in p:
            x = block(layer, x)
        return x

    return images(apply, 4 * [params], each(last, factor, 4))


def fused(split: Any) -> Case:
    """Transformer whose attention has one kernel for queries, keys and values."""

    def block(p: Any, x: Any) -> Any:
        x = x + attend_fused(p, normed(x), split)
        return x + mlp(p, normed(x))

    return blocks(block, "out up down", {"out": EIGHT, "down": EIGHT}, qkv=shape(N, 3, N))


def stacked_gates(p: Any, xs: Any) -> Any:
    """LSTM in a Python loop, its gates a stack."""
    h = c = jnp.zeros((len(xs), N))
    for t in range(xs.shape[1]):
        gates = (xs[:, t] @ p["w"] + h @ p["u"]).reshape(len(xs), 4, N)
        c = jax.nn.sigmoid(gates[:, 0]) * c + jax.nn.sigmoid(gates[:, 1]) * jnp.tanh(gates[:, 2])
        h = jax.nn.sigmoid(gates[:, 3]) * jnp.tanh(c)
    return h


def norm_first(p: Any, x: Any) -> Any:
    x = x + attend(p, normed(x), normed(x))
    return x + mlp(p, normed(x))


def norm_last(p: Any, x: Any) -> Any:
    x = normed(x + attend(p, x, x))
    return normed(x + mlp(p, x))


MOBILE = named("up s e down") | {"depthwise": shape(3, 3, 1, N), "scale": shape(N)}
EIGHT = 8**-0.5
CASES: dict[str, Case] = {
    # No sum of a stream with a branch.
    "LSTM, scanned": Case(lstm, LSTM, (TOKENS,), {}),
    "GRU, scanned": Case(gru, GRU, (TOKENS,), {}),
    "LSTM, a stack of gates": Case(stacked_gates, LSTM, (TOKENS,), {}),
    "highway": blocks(highway, "gate up", {}),
    "a pyramid": Case(pyramid, named("a b c l0 l1 l2"), (ROWS,), {}),
    # Residual networks.
    "plain": blocks(lambda p, x: x + mlp(p, x), "up down", {"down": 0.5}),
    "subtracted": blocks(lambda p, x: x - mlp(p, x), "up down", {"down": 0.5}),
    "v1": images(lambda p, x: projected(p, x, False), STAGES, each("scale", 0.5, 4, "blocks/")),
    "v2": images(lambda p, x: projected(p, x, True), STAGES, each("b", 0.5, 4, "blocks/")),
    "RepVGG": of_blocks(repvgg, {"three": KERNEL, "one": ONE}, "three one", EIGHT),
    "squeeze and excitation": blocks(excited, "up down squeeze excite", {"down": 0.5}),
    "MBConv": images(mobile, [MOBILE, MOBILE, MOBILE], each("scale", 2**-0.5, 3) | {"0/scale": 1}),
    "ConvNeXt": images(
        convnext,
        4 * [MLP | {"depthwise": shape(7, 7, 1, N), "scale": shape(N)}],
        each("scale", 0.5, 4),
    ),
    "dropout": blocks(dropped, "up down", {"down": 0.5})._replace(inputs=(TOKENS, MASK)),
    "last activation": blocks(
        lambda p, x: x + jax.nn.silu(batch_normed(mlp(p, x), p["scale"])),
        "up down",
        {"scale": 0.5},
        scale=shape(N),
    ),
    "last gelu": blocks(lambda p, x: x + jax.nn.gelu(mlp(p, x)), "up down", {"down": 0.5}),
    "concatenated last": blocks(concatenated, "up down a", {"a": 0.5, "down": 0.5}),
    "stacked": blocks(
        lambda p, x: jnp.stack([x, mlp(p, x), x @ p["a"]], 1).sum(1),
        "up down a",
        {"a": EIGHT, "down": EIGHT},
    ),
    "rows of a concatenation": blocks(
        lambda p, x: jnp.concatenate([x[None], mlp(p, x)[None]]).sum(0), "up down", {"down": 0.5}
    ),
    "queries, keys and values by index": fused(lambda x: jnp.moveaxis(x, 2, 0)),
    "queries, keys and values by split": fused(
        lambda x: [part[:, :, 0] for part in jnp.split(x, 3, 2)]
    ),
    "reversible": Case(
        reversible,
        2 * [{"f": MLP, "g": MLP}],
        (shape(3, 2 * N),),
        each("f/down g/down", 2**-0.5, 2),
    ),
    "U-Net of diffusion": Case(
        diffusion,
        {
            "stem": shape(),
            "down": named("a b time"),
            "pool": shape(),
            "middle": named("a b time"),
            "attention": ATTENTION,
            "up": {"a": shape(2 * N, N), "b": shape(), "time": shape(), "short": shape(2 * N, N)},
        },
        (TOKENS, shape(2, N)),
        {"middle/b": 3**-0.5, "attention/out": 3**-0.5, "up/b": 3**-0.5},
    ),
    # Transformers.
    "pre-norm": blocks(norm_first, "q k v out up down", {"out": EIGHT, "down": EIGHT}),
    "post-norm": blocks(norm_last, "q k v out up down", {"out": EIGHT, "down": EIGHT}),
    "norm after the branch": blocks(
        lambda p, x: x + normed(mlp(p, x), p["scale"]), "up down", {"scale": 0.5}, scale=shape(N)
    ),
    "parallel": blocks(parallel, "q k v out up down", {"out": EIGHT, "down": EIGHT}),
    "embedded": Case(
        embedded,
        {"table": shape(7, N), "positions": shape(5, N), "blocks": 4 * [MLP]},
        (jax.ShapeDtypeStruct((2, 5), jnp.int32),),
        each("down", 0.5, 4, "blocks/"),
    ),
    "two streams": Case(
        encoder_decoder,
        {
            "encoder": 2 * [ATTENTION | MLP],
            "decoder": 3 * [ATTENTION | MLP | {"cross": ATTENTION}],
        },
        (TOKENS, TOKENS),
        each("out down", 0.5, 2, "encoder/") | each("out cross/out down", 1 / 3, 3, "decoder/"),
    ),
    # Other programs.
    "shared": Case(shared, MLP, (ROWS,), {"down": 0.5}),
    "scanned": Case(
        scanned,
        {"stem": shape(), "layers": named("up down", 9, N, N)},
        (ROWS,),
        {"layers/down": 1 / 3},
    ),
    "scanned, rematerialized": Case(
        lambda p, x: scanned(p, x, remat=True),
        {"stem": shape(), "layers": named("up down", 9, N, N)},
        (ROWS,),
        {"layers/down": 1 / 3},
    ),
    "a loop": Case(
        lambda p, x: jax.lax.fori_loop(0, 4, lambda _, x: x + mlp(p, x), x),
        MLP,
        (ROWS,),
        {"down": 0.5},
    ),
    "a loop over a stack": Case(indexed, named("up down", 9, N, N), (ROWS,), {"down": 1 / 3}),
    "WaveNet": Case(
        wavenet,
        {"blocks": 5 * [named("f g", 2, N, N) | named("skip out")], "head": shape()},
        (shape(2, 40, N),),
        each("out", 0.5, 4, "blocks/"),  # the last one reaches no result
    ),
    "messages": Case(
        messages,
        4 * [{"a": shape(2 * N, N), "b": shape()}],
        (ROWS, INDICES, INDICES),
        each("b", 0.5, 4),
    ),
    "scaled readout": Case(readout, MLP | {"head": shape()}, (ROWS,), {"down": 0.5}),
    "LSTMs with projections": Case(
        recurrent_stack, 4 * [LSTM | {"out": shape()}], (TOKENS,), each("out", 0.5, 4)
    ),
    "weight normalization": blocks(
        of_kernel(weight_normalized), "up down", {"scale": 0.5}, scale=shape(N)
    ),
    "masked kernel": blocks(
        of_kernel(lambda p: jnp.where(jnp.eye(N) > 0, 0.0, p["down"])), "up down", {"down": 0.5}
    ),
    "bfloat16": blocks(
        lambda p, x: x + mlp(jax.tree.map(lambda w: w.astype(jnp.bfloat16), p), x),
        "up down",
        {"down": 0.5},
    ),
}
#: Networks that are refused, and the parameters that the message names.
REFUSED: dict[str, tuple[Case, tuple[str, ...]]] = {
    "a gated linear unit at the end": (
        blocks(lambda p, x: x + (x @ p["up"]) * jax.nn.sigmoid(x @ p["down"]), "up down", {}),
        ("blocks/0/up", "blocks/0/down"),
    ),
    "a normalization without a scale": (
        blocks(lambda p, x: x + normed(mlp(p, x)), "up down", {}),
        ("blocks/0/down",),
    ),
    "a scale around 1": (
        blocks(lambda p, x: x + normed(mlp(p, x), 1 + p["scale"]), "up down", {}, scale=shape(N)),
        ("blocks/0/down",),
    ),
    "a standardized kernel": (
        blocks(of_kernel(lambda p: standardized(p["down"])), "up down", {}),
        ("blocks/0/down",),
    ),
    "the product of two kernels": (
        blocks(of_kernel(lambda p: p["up"] @ p["down"]), "up down", {}),
        ("blocks/0/up", "blocks/0/down"),
    ),
    "a recurrent layer": (
        Case(lambda p, x: (y := x @ p[1]) + lstm(p[0], y), [LSTM, shape()], (TOKENS,), {}),
        ("0/w", "0/u"),
    ),
    "a branch of the program": (
        Case(
            lambda p, x: jax.lax.cond(x.sum() > 0, lambda: x + mlp(p, x), lambda: x),
            MLP,
            (ROWS,),
            {},
        ),
        ("up", "down"),
    ),
    "a branch that is split over devices": (Case(split, MLP, (ROWS,), {}), ("up", "down")),
}
