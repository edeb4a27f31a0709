"""The second step runs the program of the first."""

from typing import Any

import chex
import jax
import optax

from tests.table import Row, example_gradients, example_params


def test_one_trace_for_all_steps(row: Row) -> None:
    tx = row.tx
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    params, gradients = example_params(), example_gradients()
    state = tx.init(params)
    for _ in range(3):
        params, state = step(params, state, gradients)
    assert step._cache_size() == 1
