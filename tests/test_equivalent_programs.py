"""Equivalent programs of one network: every query gives the same result for each of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxnorm as jn
from tests.draws import draw

X = draw(0, 6, 8)
BLOCKS = [{"a": draw(2 * i + 1, 8, 8), "b": draw(2 * i + 2, 8, 8)} for i in range(3)]
HEADS = {"w": draw(20, 4, 8, 5)}


def block(x: Any, p: Any) -> Any:
    return x + jnp.tanh(x @ p["a"]) @ p["b"]


def loop(p: Any, x: Any) -> Any:
    for each in p:
        x = block(x, each)
    return x


def swapped(p: Any, x: Any) -> Any:
    for each in p:
        x = jnp.tanh(x @ each["a"]) @ each["b"] + x
    return x


def einsums(p: Any, x: Any) -> Any:
    for each in p:
        x = x + jnp.einsum("hb,ho->bo", jnp.tanh(jnp.einsum("ih,bi->hb", each["a"], x)), each["b"])
    return x


def two_streams(entries: Callable[[Any], Any]) -> Callable[..., Any]:
    """A reversible network, whose two streams are entries of one array between its blocks."""

    def apply(p: Any, x: Any) -> Any:
        streams = jnp.stack([x, jnp.tanh(x)])
        for each in p:
            one, other = entries(streams)
            one = one + jnp.tanh(other @ each["a"])
            streams = jnp.stack([one, other + jnp.tanh(one @ each["b"])])
        return jnp.concatenate([*entries(streams)], -1)

    return apply


class Pair(NamedTuple):
    """Two programs of one network, with the inputs of each."""

    one: Callable[..., Any]
    other: Callable[..., Any]
    params: Any
    inputs: tuple[Any, ...] = (X,)
    others: tuple[Any, ...] = (X,)


def image(p: Any, x: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")

    def conv(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)

    return conv(jnp.tanh(conv(x, p["a"])), p["b"])


CONVOLUTIONS = {"a": draw(30, 3, 3, 2, 4), "b": draw(31, 3, 3, 4, 4)}
PAIRS = {
    "order of a sum": Pair(loop, swapped, BLOCKS),
    "einsums with units first": Pair(loop, einsums, BLOCKS),
    "remat": Pair(loop, lambda p, x: jax.checkpoint(loop)(p, x), BLOCKS),
    "jit of a block": Pair(
        loop,
        lambda p, x: jax.jit(block)(jax.jit(block)(jax.jit(block)(x, p[0]), p[1]), p[2]),
        BLOCKS,
    ),
    "vmap over rows": Pair(loop, jax.vmap(loop, (None, 0)), BLOCKS),
    "entries of an array": Pair(
        two_streams(lambda x: (x[0], x[1])), two_streams(jnp.unstack), BLOCKS
    ),
    "order of arguments": Pair(
        lambda p, x, y: jnp.tanh(x @ p[0]["a"]) @ p[0]["b"] + y,
        lambda p, y, x: jnp.tanh(x @ p[0]["a"]) @ p[0]["b"] + y,
        BLOCKS[:1],
        (X, draw(40, 6, 8)),
        (draw(40, 6, 8), X),
    ),
    "heads in a loop": Pair(
        lambda p, x: jnp.einsum("bi,hio->bho", x, p["w"]),
        lambda p, x: jnp.stack([x @ p["w"][i] for i in range(4)], 1),
        HEADS,
    ),
}
#: Queries of the structure, and those of the numbers.
QUERIES: dict[str, Callable[..., Any]] = {
    "layout": lambda apply, p, *x: jn.traced_layout(jn.read(apply, p, *x))(p),
    "factors": lambda apply, p, *x: jn.residual_factors(jn.read(apply, p, *x)),
    "depth": lambda apply, p, *x: jn.shaping.traced_depth(jn.read(apply, p, *x))(
        0.0, lambda value: value + 1
    ),
    "start": lambda apply, p, *x: jn.variance_preserving_init(
        jn.read(apply, p, *x), layout=jn.traced_layout(jn.read(apply, p, *x))
    ),
    "noise": lambda apply, p, *x: jn.with_scale_noise(
        apply, 0.5, layout=jn.traced_layout(jn.read(apply, p, *x))
    )(jax.random.key(0), p, *x),
    "propagation": lambda apply, p, *x: dict(sorted(jn.propagation(jn.read(apply, p, *x)).items())),
}
#: A stack in parts has no single product.
LEFT_OUT = {("heads in a loop", query) for query in QUERIES if query != "layout"}
CELLS = [(pair, query) for pair in PAIRS for query in QUERIES if (pair, query) not in LEFT_OUT]


@pytest.mark.parametrize(("pair", "query"), CELLS)
def test_equivalent_programs_have_equal_results(pair: str, query: str) -> None:
    one, other, params, inputs, others = PAIRS[pair]
    results = [QUERIES[query](apply, params, *x) for apply, x in ((one, inputs), (other, others))]
    first, second = map(jax.tree.structure, results)
    assert first == second
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("query", ["layout", "factors", "depth"])
def test_another_image_size_has_the_same_structure(query: str) -> None:
    sizes = (draw(50, 2, 4, 4, 2), draw(51, 2, 4, 8, 2), draw(52, 3, 9, 9, 2))
    results = [QUERIES[query](image, CONVOLUTIONS, x) for x in sizes]
    assert results[0] == results[1] == results[2]


def test_a_scan_of_layers_is_their_loop() -> None:
    """Not in its draws, which belong to a kernel's path, and a stack has one."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *BLOCKS)
    scanned = lambda p, x: jax.lax.scan(lambda x, p: (block(x, p), None), x, p)[0]  # noqa: E731
    start = jax.tree.map(lambda *x: jnp.stack(x), *QUERIES["start"](loop, BLOCKS, X))
    signal = QUERIES["propagation"](loop, BLOCKS, X)
    signal = {"{1}/{0}/{2}".format(*name.split("/")): x for name, x in signal.items()}
    for query, expected in (("start", start), ("propagation", signal)):
        result = QUERIES[query](scanned, stacked, X)
        for a, b in zip(*map(jax.tree.leaves, (result, expected)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
