"""States initialized from shapes and inside jit, and donated buffers."""

from typing import Any

import jax
import optax
import pytest

from tests.table import Row, example_gradients, example_params
from tests.trees import assert_close, assert_equal, quick_jit, run


def test_init_from_shapes(row: Row) -> None:
    tx, params = row.tx, example_params()
    shapes = jax.eval_shape(example_params)
    actual, expected = jax.eval_shape(tx.init, shapes), tx.init(params)
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    types = [[(x.shape, x.dtype) for x in jax.tree.leaves(tree)] for tree in (actual, expected)]
    assert types[0] == types[1]


def test_init_inside_jit(row: Row) -> None:
    tx, params = row.tx, example_params()
    assert_equal(jax.jit(tx.init)(params), tx.init(params))


@pytest.mark.kept("sphere", "zero_sums", "centered")
def test_parameters_and_state_can_be_donated(row: Row) -> None:
    tx = row.tx

    def step(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = tx.update(gradients, state, params)
        return updates, optax.apply_updates(params, updates), state

    donating = quick_jit(step, donate_argnums=(0, 1))
    params, gradients = example_params(), example_gradients()
    state = jax.jit(tx.init)(params)
    for _ in range(2):
        donated = jax.tree.leaves((params, state))
        updates, params, state = donating(params, state, gradients)
        assert all(buffer.is_deleted() for buffer in donated)
    assert_close((updates, state), run(tx, example_params(), gradients)[1:])
