"""Types of updates and states stay what they are, and values are accurate in each type."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from jaxnorm import NoiseState
from tests.table import Row, example_gradients, example_params
from tests.tolerances import HALF
from tests.trees import assert_close, by_path, quick_jit, run

WIDTHS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}


def dtypes(tree: Any) -> dict[str, Any]:
    return {path: leaf.dtype for path, leaf in by_path(tree).items() if hasattr(leaf, "dtype")}


def state_of_jaxnorm(state: Any) -> Any:
    """The state without the wrapped optimizer's, whose types jaxnorm does not choose."""
    return state._replace(inner_state=()) if isinstance(state, NoiseState) else state


def two_steps(tx: optax.GradientTransformation, params: Any, gradients: Any) -> Any:
    """Two updates, and jaxnorm's state before and after each."""
    states = [tx.init(params)]
    first, state = tx.update(gradients, states[0], params)
    # optax adds numbers of two types, which promotes.
    with jax.numpy_dtype_promotion("standard"):
        moved = optax.apply_updates(params, first)
    second, end = tx.update(gradients, state, moved)
    return first, second, [state_of_jaxnorm(state) for state in (*states, state, end)]


@pytest.mark.kept("bfloat16")
@pytest.mark.parametrize("updates_dtype", WIDTHS)
@pytest.mark.parametrize("params_dtype", WIDTHS)
def test_updates_and_states_keep_their_types(
    row: Row, params_dtype: str, updates_dtype: str
) -> None:
    params = example_params(WIDTHS[params_dtype])
    gradients = example_gradients(WIDTHS[updates_dtype])
    first, second, states = jax.eval_shape(lambda: two_steps(row.tx, params, gradients))
    base = jax.eval_shape(lambda: two_steps(row.base, params, gradients))
    landed = {path: dtype for path, dtype in dtypes(params).items() if row.lands(path)}
    if params_dtype != "float32":  # No type of updates here is wider than float32.
        landed = {path: dtypes(first)[path] for path in landed}
        assert set(map(_bits, landed.values())) <= {_bits(WIDTHS[updates_dtype])}
    assert dtypes(first) == dtypes(base[0]) | landed
    assert dtypes(second) == dtypes(base[1]) | landed
    if row.promotion == "strict":
        assert dtypes(first) == dtypes(second) == dtypes(gradients) | landed
    assert dtypes(states[0]) == dtypes(states[1]) == dtypes(states[2])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, pytest.param(jnp.float16, marks=pytest.mark.slow)])
def test_narrow_types_follow_float32(row: Row, dtype: Any) -> None:
    params, gradients = example_params(dtype), example_gradients(dtype)
    wide = [cast(tree, jnp.float32) for tree in (params, gradients)]
    actual, expected = run(row.tx, params, gradients)[0], run(row.tx, *wide)[0]
    assert_close(cast(actual, jnp.float32), expected, HALF)


def test_float64(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    narrow = run(row.tx, params, gradients)[0]
    with jax.enable_x64(True):
        wide = [cast(tree, jnp.float64) for tree in (params, gradients)]
        first, second, states = quick_jit(lambda p, g: two_steps(row.tx, p, g))(*wide)
        actual = cast(first, jnp.float32)
    assert set(dtypes(first).values()) == set(dtypes(second).values()) == {jnp.dtype("float64")}
    assert dtypes(states[0]) == dtypes(states[1]) == dtypes(states[2])
    if isinstance(states[0], NoiseState):
        _drop_scale(actual, narrow)
    assert_close(actual, narrow)


def _bits(dtype: Any) -> int:
    return int(jnp.finfo(dtype).bits)


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)


def _drop_scale(*trees: Any) -> None:
    """Removes scales, whose noise depends on the width of the random bits."""
    for tree in trees:
        tree["scaled"]["kernel"] = tree["scaled"]["kernel"].kernel
