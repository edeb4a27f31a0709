"""None and MaskedNode leaves pass through, and do not change the updates of present leaves.

The oracle is the transform of a tree without the absent leaves.
"""

from typing import Any

import jax
import optax
import pytest

from tests.table import TABLE, Row, example_gradients, example_params
from tests.trees import assert_close, assert_equal, by_path, is_absent, run

#: Placeholders of a bias, a whole kernel and the bias beside the `Scaled` node.
ABSENT = {"conv/bias": None, "dense/kernel": optax.MaskedNode(), "scaled/bias": None}


def replaced(tree: dict[str, Any], leaves_by_path: dict[str, Any]) -> dict[str, Any]:
    """The tree with other leaves at some paths."""
    return {
        layer: {name: leaves_by_path.get(f"{layer}/{name}", leaf) for name, leaf in leaves.items()}
        for layer, leaves in tree.items()
    }


def deleted(tree: dict[str, Any]) -> dict[str, Any]:
    return {
        layer: {name: leaf for name, leaf in leaves.items() if f"{layer}/{name}" not in ABSENT}
        for layer, leaves in tree.items()
    }


def test_absent_leaves_pass_through(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    actual = run(row.tx, replaced(params, ABSENT), replaced(gradients, ABSENT))[:2]
    expected = run(row.tx, deleted(params), deleted(gradients))[:2]
    for updates, without_leaves in zip(actual, expected, strict=True):
        assert {path: x for path, x in by_path(updates).items() if is_absent(x)} == ABSENT
        assert_close(deleted(updates), without_leaves)


# Adam has moments for every parameter and accepts no gradient of None.
NOT_ADAM = [row for row in TABLE if "adam" not in row.name]


@pytest.mark.parametrize("row", NOT_ADAM, ids=lambda row: row.name)
def test_a_gradient_of_None_freezes_its_parameter(row: Row) -> None:
    params, gradients = example_params(), replaced(example_gradients(), dict.fromkeys(ABSENT))
    updates, _ = jax.jit(row.tx.update)(gradients, row.tx.init(params), params)
    expected = run(row.tx, deleted(params), deleted(gradients))[0]
    assert {path for path, x in by_path(updates).items() if x is None} == set(ABSENT)
    assert_close(deleted(updates), expected)


@pytest.mark.kept("sphere", "centered", "noise")
def test_a_mask_may_be_a_prefix(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    mask = {"conv": False, "dense": True, "scaled": {"bias": False, "kernel": True}}
    actual = run(optax.masked(row.tx, mask), params, gradients)[0]
    parts = [
        {"conv": {}, "dense": tree["dense"], "scaled": {"kernel": tree["scaled"]["kernel"]}}
        for tree in (params, gradients)
    ]
    expected = run(row.tx, *parts)[0]
    trained = {
        "conv": {},
        "dense": actual["dense"],
        "scaled": {"kernel": actual["scaled"]["kernel"]},
    }
    assert_close(trained, expected)
    assert_equal(actual["conv"], gradients["conv"])
    assert_equal(actual["scaled"]["bias"], gradients["scaled"]["bias"])
