"""What the tests do with trees: run a transform for some steps, and compare."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.tolerances import FLOAT32, Tolerance

QUICK = {"xla_backend_optimization_level": 0}


def is_absent(x: Any) -> bool:
    return x is None or isinstance(x, optax.MaskedNode)


def by_path(tree: Any) -> dict[str, Any]:
    """Every leaf by its path, None and MaskedNode included."""
    flat = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_absent)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in flat}


def update_twice(init: Any, update: Any, params: Any, gradients: Any) -> Any:
    """Both updates and the last state: the second update also sees what the first left behind."""
    state = init(params)
    first, state = update(gradients, state, params)
    second, state = update(gradients, state, jax.jit(optax.apply_updates)(params, first))
    return first, second, state


def run(tx: optax.GradientTransformation, params: Any, gradients: Any) -> Any:
    """`update_twice`, compiled; tests that share a transform share the program."""
    return update_twice(jax.jit(tx.init), quick_jit(tx.update), params, gradients)


def quick_jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``jax.jit`` for what runs a few times: half of the compile time, without optimizations.

    What the tests ask of it is decided when a function is traced; `test_jit_equals_eager` has jit.
    """
    compiled: Callable[..., Any] = jax.jit(function, compiler_options=QUICK, **options)
    return compiled


def assert_close(got: Any, wanted: Any, tolerance: Tolerance = FLOAT32) -> None:
    """The same structure, shapes and types, and the same values within the tolerance."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for path, leaf in by_path(wanted).items():
        if not is_absent(leaf):
            _assert_leaf_close(by_path(got)[path], leaf, tolerance, path)


def assert_equal(got: Any, wanted: Any) -> None:
    """The same, to the bit."""
    assert_close(got, wanted, {"rtol": 0.0, "atol": 0.0})


def train(
    tx: optax.GradientTransformation,
    params: Any,
    gradients: Callable[[Any, jax.Array], Any],
    steps: int,
    land: Callable[[Any], Any] = lambda params: params,
) -> Any:
    """The parameters after steps of ``gradients(params, time)``; ``land`` follows each."""

    def step(carry: Any, time: jax.Array) -> Any:
        params, state = carry
        updates, state = tx.update(gradients(params, time), state, params)
        return (land(optax.apply_updates(params, updates)), state), None

    times = jnp.arange(1.0, steps + 1)
    return jax.jit(lambda p: jax.lax.scan(step, (p, tx.init(p)), times)[0][0])(params)


def largest_difference(got: Any, wanted: Any) -> float:
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def _assert_leaf_close(got: Any, wanted: Any, tolerance: Tolerance, path: str) -> None:
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), path
    values = [np.asarray(x, np.float64) for x in (got, wanted)]
    np.testing.assert_allclose(*values, **tolerance, err_msg=path)
