"""Spellings of residual sums: roles, factors, depth and start are those of ``x + f``."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax

import jaxnorm as jn
from jaxnorm._roles import roles_of
from jaxnorm._trace.reading import Reading
from tests.draws import draw
from tests.residual_networks import shape
from tests.trees import assert_close, by_path

ROWS, N, COUNT = 6, 8, 3
#: Places of some rows.
SOME = jnp.array([1, 3, 4])

Branch = Callable[[Any], Any]
#: ``(x, f) -> x + f(x)``.
Block = Callable[[Any, Branch], Any]


def stacked(x: Any, f: Branch, axis: int = 0) -> Any:
    return jnp.stack([x, f(x)], axis)


def history(x: Any, f: Branch) -> Any:
    """Sum over a list that a concatenation makes longer."""
    entries = x[None]
    return jnp.concatenate([entries, f(entries.sum(0))[None]]).sum(0)


def updated(x: Any, f: Branch) -> Any:
    start = (0,) * x.ndim
    return lax.dynamic_update_slice(x, lax.dynamic_slice(x, start, x.shape) + f(x), start)


def by_segments(x: Any, f: Branch) -> Any:
    rows = jnp.tile(jnp.arange(len(x)), 2)
    return jax.ops.segment_sum(jnp.concatenate([x, f(x)]), rows, len(x))


WHOLE: dict[str, Block] = {
    "a sum": lambda x, f: x + f(x),
    "a sum of a list": lambda x, f: sum([x, f(x)]),
    "a difference": lambda x, f: x - (-f(x)),
    "a scatter": lambda x, f: x.at[:].add(f(x)),
    "a scatter to every row": lambda x, f: x.at[jnp.arange(len(x))].add(f(x)),
    "a scatter that subtracts": lambda x, f: x.at[...].subtract(-f(x)),
    "scatters into zeros": lambda x, f: jnp.zeros_like(x).at[:].add(x).at[:].add(f(x)),
    "segments": by_segments,
    "a stack": lambda x, f: stacked(x, f).sum(0),
    "a stack along the last axis": lambda x, f: stacked(x, f, -1).sum(-1),
    "a reduction": lambda x, f: lax.reduce(stacked(x, f), 0.0, lax.add, (0,)),
    "parts of a stack": lambda x, f: stacked(x, f)[0] + jnp.split(stacked(x, f), 2)[1][0],
    "a stack in another order": lambda x, f: jnp.moveaxis(stacked(x, f), 0, 1).sum(1),
    "a concatenation": lambda x, f: jnp.concatenate([x, f(x)]).reshape(2, *x.shape).sum(0),
    "units side by side": lambda x, f: jnp.concatenate([x, f(x)], -1).reshape(len(x), 2, -1).sum(1),
    "a list that grows": history,
    "padded parts": lambda x, f: (
        (jnp.pad(x, ((0, ROWS), (0, 0))) + jnp.pad(f(x), ((ROWS, 0), (0, 0))))
        .reshape(2, *x.shape)
        .sum(0)
    ),
    "a cumulative sum": lambda x, f: jnp.cumsum(stacked(x, f), 0)[-1],
    "a cumulative sum, reversed": lambda x, f: lax.cumsum(stacked(x, f, 1), 1, reverse=True)[:, 0],
    "an associative scan": lambda x, f: lax.associative_scan(jnp.add, stacked(x, f))[-1],
    "an einsum with ones": lambda x, f: jnp.einsum("kbd,k->bd", stacked(x, f), jnp.ones(2)),
    "a product with ones": lambda x, f: stacked(x, f, -1) @ jnp.ones(2),
    "ones first": lambda x, f: jnp.tensordot(jnp.ones(2), stacked(x, f), 1),
    "a product with a matrix": lambda x, f: (
        jnp.concatenate([x, f(x)], -1) @ jnp.concatenate([jnp.eye(N), jnp.eye(N)])
    ),
    "an update": updated,
}
#: Sums of some of the rows, as in graph networks and mixtures of depths.
PARTS: dict[str, Block] = {
    "a sum": lambda x, f: x + jnp.zeros_like(x).at[SOME].add(f(x[SOME])),
    "a scatter": lambda x, f: x.at[SOME].add(f(x[SOME])),
    "a scatter of their sums": lambda x, f: x.at[SOME].set(x[SOME] + f(x[SOME])),
    "segments": lambda x, f: x + jax.ops.segment_sum(f(x[SOME]), SOME, ROWS),
    "segments of rows and sums": lambda x, f: jax.ops.segment_sum(
        jnp.concatenate([x, f(x[SOME])]), jnp.concatenate([jnp.arange(ROWS), SOME]), ROWS
    ),
    "a padded slice": lambda x, f: x + jnp.pad(f(x[1:4]), ((1, 2), (0, 0))),
    "a scatter to a slice": lambda x, f: x.at[1:4].add(f(x[1:4])),
}
#: Several terms, scales and gates.
OTHERS: dict[str, tuple[Block, Block]] = {
    "half of a branch": (lambda x, f: x + 0.5 * f(x), lambda x, f: x.at[:].add(0.5 * f(x))),
    "half of a scatter": (
        lambda x, f: x + 0.5 * jnp.zeros_like(x).at[SOME].add(f(x[SOME])),
        lambda x, f: x.at[SOME].add(0.5 * f(x[SOME])),
    ),
    "a mean": (lambda x, f: (x + f(x)) / 2, lambda x, f: stacked(x, f).mean(0)),
    "twice a mean": (lambda x, f: (x + f(x)) / 2 * 2, lambda x, f: stacked(x, f).mean(0) * 2),
    "weights": (lambda x, f: 0.5 * (x + f(x)), lambda x, f: stacked(x, f, -1) @ jnp.full(2, 0.5)),
    "two branches": (
        lambda x, f: x + f(x) + f(jnp.tanh(x)),
        lambda x, f: jnp.stack([f(jnp.tanh(x)), x, f(x)], 1).sum(1),
    ),
    "a branch of a sum": (
        lambda x, f: (y := x + f(x)) + f(y),
        lambda x, f: jnp.cumsum(jnp.stack([x, y := f(x), f(x + y)]), 0)[-1],
    ),
    "a chosen row of rows": (
        lambda x, f: x + jnp.zeros_like(x).at[jnp.argmax(x, 1)].add(f(x)),
        lambda x, f: x.at[jnp.argmax(x, 1)].add(f(x)),
    ),
}
PAIRS = {
    **{f"{name} of all": (WHOLE["a sum"], block) for name, block in WHOLE.items()},
    **{f"{name} of parts": (PARTS["a sum"], block) for name, block in PARTS.items()},
    **OTHERS,
}
PARAMS: dict[str, Any] = {
    "stem": shape(N, N),
    "blocks": COUNT * [{"a": shape(N, N), "b": shape(N, N)}],
    "head": shape(N, 3),
}


def network(block: Block) -> Callable[..., Any]:
    def apply(p: Any, x: Any) -> Any:
        x = x @ p["stem"]
        for layer in p["blocks"]:
            x = block(x, lambda x, p=layer: jnp.tanh(x @ p["a"]) @ p["b"])
        return x @ p["head"]

    return apply


@pytest.mark.filterwarnings("ignore:the model scales the branches:UserWarning")
@pytest.mark.parametrize("name", PAIRS)
def test_equivalent_sums_have_equal_roles_factors_and_depths(name: str) -> None:
    def read(block: Block) -> Any:
        apply, x = network(block), shape(ROWS, N)
        factors = jn.residual_factors(jn.read(apply, PARAMS, x))
        depth = jn.shaping.traced_depth(jn.read(apply, PARAMS, x), factors=factors)(
            0.0, lambda value: value + 1
        )
        return roles_of(Reading(apply, PARAMS, (x,))), factors, pytest.approx(depth)

    one, other = map(read, PAIRS[name])
    assert other == one


@pytest.mark.parametrize("block", [WHOLE["a sum"], PARTS["a sum"]])
def test_branches_are_quiet_by_their_number(block: Block) -> None:
    factors = by_path(jn.residual_factors(jn.read(network(block), PARAMS, shape(ROWS, N))))
    assert {path for path, factor in factors.items() if factor != 1} == {
        f"blocks/{i}/b" for i in range(COUNT)
    }
    assert factors["blocks/0/b"] == pytest.approx(COUNT**-0.5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:none of the hidden kernels:UserWarning")
def test_equivalent_sums_start_equal() -> None:
    params = jax.tree.map(lambda x: draw(x.shape[-1], *x.shape), PARAMS)
    x, blocks = draw(1, 16, N), [WHOLE["a sum"], WHOLE["a scatter"]]
    with jax.numpy_dtype_promotion("standard"):
        starts = [
            jn.normalizer_free(network(block), params, optax.sgd(0.1), x)[0] for block in blocks
        ]
    assert_close(*starts)


def test_entries_of_a_stack_are_what_was_stacked() -> None:
    """Two streams that are kept in one array are two, however it is taken apart."""

    def reversible(together: Callable[..., Any], apart: Callable[..., Any]) -> Any:
        def apply(p: Any, x: Any) -> Any:
            both = together(x @ p["stem"], x @ p["other"])
            for layer in p["blocks"]:
                a, b = apart(both)
                a = a + jnp.tanh(b @ layer["a"]) @ layer["b"]
                both = together(a, b + jnp.tanh(a @ layer["c"]) @ layer["d"])
            return apart(both)[0] @ p["head"]

        names = {name: shape(N, N) for name in "abcd"}
        params = PARAMS | {"other": shape(N, N), "blocks": COUNT * [names]}
        return by_path(jn.residual_factors(jn.read(apply, params, shape(ROWS, N))))

    expected = reversible(lambda a, b: (a, b), lambda both: both)
    assert {x for x in expected.values() if x != 1} == {COUNT**-0.5, (COUNT - 1) ** -0.5}
    stacks = [
        (lambda a, b: jnp.stack([a, b]), lambda both: (both[0], both[1])),
        (lambda a, b: jnp.concatenate([a, b], -1), lambda both: jnp.split(both, 2, -1)),
        (lambda a, b: jnp.concatenate([a, b]), lambda both: (both[:ROWS], both[ROWS:])),
    ]
    for together, apart in stacks:
        assert reversible(together, apart) == pytest.approx(expected)
