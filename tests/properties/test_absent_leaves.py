"""None and MaskedNode leaves pass through, and the others get the step that they get without them.

The oracle is the same transform on a tree in which the absent leaves never were.
"""

from typing import Any

import jax
import optax
import pytest

from tests.table import TABLE, Row, example_gradients, example_params
from tests.trees import assert_close, assert_equal, by_path, is_absent, run

#: Gone: a bias, a whole kernel and the bias beside the `Scaled` node, and what is there instead.
GONE = {"conv/bias": None, "dense/kernel": optax.MaskedNode(), "scaled/bias": None}


def without(tree: dict[str, Any], gone: dict[str, Any]) -> dict[str, Any]:
    """The tree with what ``gone`` has at its paths."""
    return {
        layer: {name: gone.get(f"{layer}/{name}", leaf) for name, leaf in leaves.items()}
        for layer, leaves in tree.items()
    }


def deleted(tree: dict[str, Any]) -> dict[str, Any]:
    return {
        layer: {name: leaf for name, leaf in leaves.items() if f"{layer}/{name}" not in GONE}
        for layer, leaves in tree.items()
    }


def test_absent_leaves_pass_through(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    got = run(row.tx, without(params, GONE), without(gradients, GONE))[:2]
    wanted = run(row.tx, deleted(params), deleted(gradients))[:2]
    for updates, expected in zip(got, wanted, strict=True):
        assert {path: x for path, x in by_path(updates).items() if is_absent(x)} == GONE
        assert_close(deleted(updates), expected)


# Adam itself has moments for every parameter, and no use for a gradient of None.
NOT_ADAM = [row for row in TABLE if "adam" not in row.name]


@pytest.mark.parametrize("row", NOT_ADAM, ids=lambda row: row.name)
def test_a_gradient_of_None_freezes_its_parameter(row: Row) -> None:
    params, gradients = example_params(), without(example_gradients(), dict.fromkeys(GONE))
    updates, _ = jax.jit(row.tx.update)(gradients, row.tx.init(params), params)
    wanted = run(row.tx, deleted(params), deleted(gradients))[0]
    assert {path for path, x in by_path(updates).items() if x is None} == set(GONE)
    assert_close(deleted(updates), wanted)


def test_masked_by_a_prefix(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    mask = {"conv": False, "dense": True, "scaled": {"bias": False, "kernel": True}}
    got = run(optax.masked(row.tx, mask), params, gradients)[0]
    parts = [
        {"conv": {}, "dense": tree["dense"], "scaled": {"kernel": tree["scaled"]["kernel"]}}
        for tree in (params, gradients)
    ]
    wanted = run(row.tx, *parts)[0]
    trained = {"conv": {}, "dense": got["dense"], "scaled": {"kernel": got["scaled"]["kernel"]}}
    assert_close(trained, wanted)
    assert_equal(got["conv"], gradients["conv"])
    assert_equal(got["scaled"]["bias"], gradients["scaled"]["bias"])
