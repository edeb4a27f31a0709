"""Steps inside optax's wrappers equal the steps of the bare transform."""

import jax
import jax.numpy as jnp
import optax
import pytest

from jaxnorm import clip_by_layer_norm, fixed_step, noise_injection, sphere_projection
from tests.table import Row, example_gradients, example_params
from tests.trees import assert_close, assert_equal, quick_jit, run

pytestmark = pytest.mark.usefixtures("standard_promotion")

INJECTED = {
    "squared_radius": (
        optax.inject_hyperparams(sphere_projection, static_args=("layout",)),
        {"squared_radius": 3.0},
        sphere_projection(squared_radius=3.0),
    ),
    "stddev": (
        optax.inject_hyperparams(noise_injection, static_args=("inner", "seed")),
        {"inner": optax.sgd(0.1), "seed": 7, "stddev": 0.3},
        noise_injection(optax.sgd(0.1), 0.3, seed=7),
    ),
    "relative": (
        optax.inject_hyperparams(fixed_step, static_args=("layout",)),
        {"relative": 0.3},
        fixed_step(0.3),
    ),
    "max_norm": (
        optax.inject_hyperparams(clip_by_layer_norm),
        {"max_norm": 0.5},
        clip_by_layer_norm(0.5),
    ),
}


@pytest.mark.kept("sphere", "zero_sums", "centered")
def test_chain(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    chained = optax.chain(optax.scale(0.5), optax.chain(row.tx), optax.identity())
    doubled = jax.tree.map(lambda g: 2 * g, gradients)
    assert_close(run(chained, params, doubled)[:2], run(row.tx, params, gradients)[:2])


@pytest.mark.kept("sphere", "zero_sums", "centered")
def test_partition(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    parts = {"trained": row.tx, "frozen": optax.set_to_zero()}
    labels = {
        "conv": "frozen",
        "dense": "trained",
        "scaled": jax.tree.map(lambda _: "trained", params["scaled"]),
    }
    updates, _, _ = run(optax.partition(parts, labels), params, gradients)
    kernels = [{**tree, "conv": {}} for tree in (updates, params, gradients)]
    assert_close(kernels[0], run(row.tx, *kernels[1:])[0])
    assert_equal(updates["conv"], jax.tree.map(jnp.zeros_like, params["conv"]))


@pytest.mark.kept("sphere", "zero_sums", "centered")
def test_multi_steps_accumulates_for_one_step(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    tx = optax.MultiSteps(row.tx, every_k_schedule=2)
    update, state = quick_jit(tx.update), tx.init(params)
    halves = [jax.tree.map(lambda g, share=share: share * g, gradients) for share in (0.5, 1.5)]
    for expected in run(row.tx, params, gradients)[:2]:
        updates, state = update(halves[0], state, params)
        assert_equal(updates, jax.tree.map(jnp.zeros_like, params))
        updates, state = update(halves[1], state, params)
        assert_close(updates, expected)
        params = optax.apply_updates(params, updates)


@pytest.mark.kept("sphere", "zero_sums", "centered", "noise")
def test_apply_if_finite_skips_a_step_of_nan(row: Row) -> None:
    params, gradients = example_params(), example_gradients()
    tx = optax.apply_if_finite(row.tx, max_consecutive_errors=5)
    update, state = quick_jit(tx.update), tx.init(params)
    not_finite = jax.tree.map(lambda g: g * jnp.nan, gradients)
    updates, skipped = update(not_finite, state, params)
    assert_equal(updates, jax.tree.map(jnp.zeros_like, params))
    assert_equal(skipped.inner_state, state.inner_state)
    updates, _ = update(gradients, skipped, params)
    assert_close(updates, run(row.tx, params, gradients)[0])


@pytest.mark.parametrize("name", INJECTED)
def test_injected_hyperparameter_can_change_between_steps(name: str) -> None:
    factory, arguments, bare = INJECTED[name]
    params, gradients = example_params(), example_gradients()
    tx = factory(**arguments | {name: 1.0})
    state = tx.init(params)
    state.hyperparams[name] = jnp.float32(arguments[name])
    updates, _ = quick_jit(tx.update)(gradients, state, params)
    assert_close(updates, run(bare, params, gradients)[0])
