"""The second step runs the program of the first."""

from typing import Any

import chex
import jax
import optax

from tests.table import Row, example_gradients, example_params

#: What JAX traced, lowered and compiled since this file was imported.
EVENTS: list[str] = []


def noted(event: str, *_: Any, **__: Any) -> None:
    if event.startswith("/jax/core/compile"):
        EVENTS.append(event)


jax.monitoring.register_event_duration_secs_listener(noted)


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
    EVENTS.clear()
    params, state = step(params, state, gradients)
    assert EVENTS
    EVENTS.clear()
    for _ in range(2):
        params, state = step(params, state, gradients)
    assert not EVENTS
