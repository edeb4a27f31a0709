"""Compiled steps equal eager steps."""

import jax

from tests.table import Row, example_gradients, example_params
from tests.trees import assert_close, update_twice


def test_jit_equals_eager(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    eager = update_twice(row.tx.init, row.tx.update, params, gradients)
    compiled = update_twice(jax.jit(row.tx.init), jax.jit(row.tx.update), params, gradients)
    assert_close(compiled, eager)
