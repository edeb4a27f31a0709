"""Helpers for trees: run a transform for some steps, and compare."""

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
    """Leaves by path, None and MaskedNode included."""
    flat = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_absent)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in flat}


def update_twice(init: Any, update: Any, params: Any, gradients: Any) -> Any:
    """Two updates and the last state; the second update depends on the state after the first."""
    state = init(params)
    first, state = update(gradients, state, params)
    second, state = update(gradients, state, jax.jit(optax.apply_updates)(params, first))
    return first, second, state


def run(tx: optax.GradientTransformation, params: Any, gradients: Any) -> Any:
    """Compiled `update_twice`; tests that share a transform share the program."""
    return update_twice(jax.jit(tx.init), quick_jit(tx.update), params, gradients)


def quick_jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``jax.jit`` without optimizations, in half of the compile time, for functions with few calls.

    Tracing decides the properties that these tests hold; `test_jit_equals_eager` uses ``jax.jit``.
    """
    compiled: Callable[..., Any] = jax.jit(function, compiler_options=QUICK, **options)
    return compiled


def assert_close(actual: Any, expected: Any, tolerance: Tolerance = FLOAT32) -> None:
    """Asserts equal structures, shapes and types, and values equal within the tolerance."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for path, leaf in by_path(expected).items():
        if not is_absent(leaf):
            _assert_leaf_close(by_path(actual)[path], leaf, tolerance, path)


def assert_equal(actual: Any, expected: Any) -> None:
    """Asserts equal structures, shapes, types and values."""
    assert_close(actual, expected, {"rtol": 0.0, "atol": 0.0})


def train(
    tx: optax.GradientTransformation,
    params: Any,
    gradients: Callable[[Any, jax.Array], Any],
    steps: int,
    land: Callable[[Any], Any] = lambda params: params,
) -> Any:
    """Parameters after steps along ``gradients(params, time)``, each followed by ``land``."""

    def step(carry: Any, time: jax.Array) -> Any:
        params, state = carry
        updates, state = tx.update(gradients(params, time), state, params)
        return (land(optax.apply_updates(params, updates)), state), None

    times = jnp.arange(1.0, steps + 1)
    return jax.jit(lambda p: jax.lax.scan(step, (p, tx.init(p)), times)[0][0])(params)


def largest_difference(actual: Any, expected: Any) -> float:
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def _assert_leaf_close(actual: Any, expected: Any, tolerance: Tolerance, path: str) -> None:
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), path
    values = [np.asarray(x, np.float64) for x in (actual, expected)]
    np.testing.assert_allclose(*values, **tolerance, err_msg=path)
