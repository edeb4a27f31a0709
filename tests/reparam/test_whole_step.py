"""One whole step of training: v0 - lr gradient, in every leaf, and no leaf but by the optimizer."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from jaxnorm import (
    WeightNormalized,
    attach_singular_vectors,
    effective,
    power_iteration,
    reparametrize,
)
from jaxnorm.nnx import functionalize
from tests.reparam.table import FLOAT32, LAYER, TABLE, Row, normal, random_node
from tests.reparam.trees import assert_near, oracle_gradients, oracle_value
from tests.trees import assert_equal, by_path

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


def test_every_trainable_number_gets_a_gradient(row: Row) -> None:
    raw = {"kernel": random_node(row, "dense")}
    gradients = by_path(jax.jit(jax.grad(loss))(raw))
    for path, gradient in gradients.items():
        if gradient is not None:
            free = gradient[1:] if path.endswith("coordinates") else gradient
            assert np.all(np.asarray(free) != 0), path


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


@pytest.mark.parametrize("wrapper", [nnx.WeightNorm, nnx.SpectralNorm], ids=["wn", "sn"])
def test_flax_writes_into_the_kernel_that_it_normalizes(wrapper: type) -> None:
    """Why this library does not: https://github.com/google/flax/issues/5576."""
    layer = nnx.Linear(8, 6, rngs=nnx.Rngs(0))
    wrapped = wrapper(layer, rngs=nnx.Rngs(1))
    before = np.array(layer.kernel[...])
    wrapped(X) if wrapper is nnx.WeightNorm else wrapped(X, update_stats=True)
    assert np.abs(np.asarray(layer.kernel[...]) - before).max() > 1e-2


def test_a_weight_normalized_gradient_is_orthogonal_to_the_direction() -> None:
    row = next(row for row in TABLE if row.name == "wn")
    node = random_node(row, "dense")
    gradient = jax.jit(jax.grad(loss))({"kernel": node})["kernel"]
    direction, slope = np.asarray(node.direction, np.float64), np.asarray(gradient.direction)
    assert_near((direction * slope).sum(0), np.zeros(6), FLOAT32)
    # So the length grows, by Pythagoras, with every step of SGD.
    moved = np.linalg.norm(direction - RATE * slope, axis=0)
    squares = np.linalg.norm(direction, axis=0) ** 2 + (RATE * np.linalg.norm(slope, axis=0)) ** 2
    assert_near(moved, np.sqrt(squares), FLOAT32)
    assert (moved > np.linalg.norm(direction, axis=0)).all()


@pytest.mark.slow
@pytest.mark.usefixtures("standard_promotion")
def test_orbax_saves_and_restores_every_node_and_its_optimizer(tmp_path: Path) -> None:
    raw = {row.name: {"kernel": random_node(row, "dense")} for row in TABLE}
    raw["half"] = {"kernel": random_node(TABLE[0], "conv", jnp.bfloat16)}
    optimizer = optax.adam(0.1)
    gradients = jax.tree.map(lambda leaf: 0.5 * leaf, raw)
    _, state = jax.jit(optimizer.update)(gradients, optimizer.init(raw), raw)
    saved = {"raw": raw, "state": state, "vectors": power_iteration(raw)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step", saved)
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "step", jax.eval_shape(lambda: saved))
    assert_equal(restored, saved)
    for row in TABLE:
        before, after = raw[row.name]["kernel"], restored["raw"][row.name]["kernel"]
        assert type(after) is type(before)
        assert after.fan_in_axes == before.fan_in_axes
    kernels = effective(attach_singular_vectors(restored["raw"], restored["vectors"]))
    assert_equal(kernels, effective(attach_singular_vectors(raw, saved["vectors"])))


def test_reparametrized_parameters_train_in_an_nnx_model() -> None:
    model = nnx.Sequential(
        nnx.Linear(8, 8, rngs=nnx.Rngs(0)), jnp.tanh, nnx.Linear(8, 6, rngs=nnx.Rngs(1))
    )
    apply, params, state = functionalize(model)
    raw, optimizer = reparametrize(params, WeightNormalized), optax.sgd(0.5)

    def error(raw: Any) -> jax.Array:
        return ((apply(effective(raw), state, X, train=True)[0] - Y) ** 2).mean()

    @jax.jit
    def step(raw: Any, opt_state: Any) -> Any:
        value, gradient = jax.value_and_grad(error)(raw)
        updates, opt_state = optimizer.update(gradient, opt_state, raw)
        return optax.apply_updates(raw, updates), opt_state, value

    opt_state, values = optimizer.init(raw), []
    for _ in range(100):
        raw, opt_state, value = step(raw, opt_state)
        values.append(float(value))
    assert values[-1] < 0.5 * values[0]
