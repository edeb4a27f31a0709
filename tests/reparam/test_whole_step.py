"""One whole step of training: v0 - lr gradient, in every leaf, and no leaf but by the optimizer."""

from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from jaxnorm import effective
from jaxnorm.nnx import functionalize
from tests.reparam.table import LAYER, Row, normal, random_node
from tests.reparam.trees import assert_near, oracle_gradients, oracle_value
from tests.trees import assert_equal

RATE = 0.3
X, Y = normal(20, (16, 8)), normal(21, (16, 6))


def loss(raw: Any) -> jax.Array:
    return ((X @ effective(raw)["kernel"] - Y) ** 2).mean()


def oracle_kernel_gradient(kernel: np.ndarray) -> np.ndarray:
    """The gradient of the mean squared error with respect to a plain kernel, in float64."""
    x, y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
    return 2 * x.T @ (x @ kernel - y) / y.size


def test_sgd_moves_the_raw_leaves_by_the_rate_times_their_gradient(row: Row) -> None:
    raw = {"kernel": random_node(row, "dense")}
    before = jax.tree.map(np.array, raw)
    optimizer = optax.sgd(RATE)

    @jax.jit
    def step(raw: Any, state: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(raw), state, raw)
        return optax.apply_updates(raw, updates)

    effective(raw)
    after = step(raw, optimizer.init(raw))
    assert_equal(raw, before)
    cotangent = oracle_kernel_gradient(oracle_value(row, raw["kernel"]))
    wanted = oracle_gradients(row, raw["kernel"], cotangent)
    for new, old, gradient in zip(*map(jax.tree.leaves, (after, before)), wanted, strict=True):
        assert_near(new, old - RATE * gradient, LAYER)


def test_a_model_runs_with_the_effective_kernel_and_nothing_is_written(row: Row) -> None:
    model = nnx.Linear(8, 6, rngs=nnx.Rngs(0))
    apply, params, state = functionalize(model)
    kept = np.array(model.kernel[...])
    raw = {**params, "kernel": random_node(row, "dense")}
    before = jax.tree.map(np.array, raw)
    output, _ = jax.jit(lambda r: apply(effective(r), state, X, train=True))(raw)
    assert_near(output, np.asarray(X, np.float64) @ oracle_value(row, raw["kernel"]), LAYER)
    assert_equal(raw, before)
    np.testing.assert_array_equal(model.kernel[...], kept)
