"""Noise injection: draws, the gradient that the optimizer gets, and the leaves that are noisy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

from jaxnorm import (
    Scaled,
    WeightNormalized,
    clean_parameters,
    effective,
    noise_injection,
    perturb_scales,
)
from tests.table import example_gradients, example_params
from tests.tolerances import DIFFERENT, FLOAT32_STEPS
from tests.trees import assert_close, assert_equal, largest_difference, quick_jit

UNITS = 20_000
SIGMA = 0.7


def zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def step(tx: Any, params: Any, state: Any, gradients: Any) -> Any:
    updates, state = quick_jit(tx.update)(gradients, state, params)
    return optax.apply_updates(params, updates), state


def two_wide_layers() -> Any:
    node = Scaled(jnp.ones((1, UNITS)), jnp.ones(UNITS), (-2,))
    return {"a": {"kernel": node}, "b": {"kernel": node}}


def noise_of(params: Any, layer: str) -> np.ndarray:
    """Returns n of a layer whose clean scale is 1."""
    return np.asarray(params[layer]["kernel"].scale, np.float64) - 1


def test_draws_are_independent_normal_numbers() -> None:
    """Four standard errors each: 1/sqrt(N) for means and correlations, 1/sqrt(2N) for the std."""
    tx, params = noise_injection(optax.sgd(0.1), SIGMA, seed=11), two_wide_layers()
    first, state = step(tx, params, tx.init(params), zeros(params))
    second, state = step(tx, first, state, zeros(params))
    draws = [noise_of(first, "a"), noise_of(first, "b"), noise_of(second, "a")]
    for draw in draws:
        assert abs(draw.mean()) < 4 * SIGMA / np.sqrt(UNITS)
        assert abs(draw.std() / SIGMA - 1) < 4 / np.sqrt(2 * UNITS)
        assert scipy.stats.kstest(draw / SIGMA, "norm").pvalue > 1e-3
    correlations = np.corrcoef(draws)[np.triu_indices(3, k=1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(UNITS)


def test_the_seed_decides_the_draws() -> None:
    """Another default generator changes nothing: the draws of rbg depend on the sharding."""
    params = example_params()

    def after(seed: Any) -> Any:
        # Not `step`, which may keep the program of the other generator.
        tx = noise_injection(optax.sgd(0.1), SIGMA, seed=seed)
        return optax.apply_updates(params, tx.update(zeros(params), tx.init(params), params)[0])

    expected = after(0)
    assert_equal(after(0), expected)
    assert_equal(after(jnp.uint32(0)), expected)
    assert largest_difference(after(1), expected) > DIFFERENT
    with jax.default_prng_impl("rbg"):
        assert_equal(after(0), expected)


def loss(params: Any) -> Any:
    """A loss that is not quadratic and couples kernels, scales and biases."""
    weights = effective(params)
    x = jnp.linspace(-1.0, 1.0, 8)
    hidden = jnp.tanh(x @ weights["scaled"]["kernel"] + weights["scaled"]["bias"])
    return jnp.sin(hidden * weights["dense"]["bias"]).sum() + 0.1 * jnp.square(hidden).sum()


@pytest.mark.slow
def test_a_step_differentiates_through_perturb_scales() -> None:
    """Weight decay acts on the clean scale; the first step has no noise."""
    seed, rate, decay = 5, 0.05, 0.1
    inner = optax.chain(optax.add_decayed_weights(decay), optax.sgd(rate))
    tx = noise_injection(inner, SIGMA, seed=seed)
    visible = clean = example_params()
    state = tx.init(visible)
    assert_equal(clean_parameters(state, visible), visible)

    def noisy_loss(clean: Any, count: int) -> Any:
        key = jax.random.fold_in(jax.random.key(seed), count)
        return loss(clean if count == 0 else perturb_scales(clean, SIGMA, key))

    for count in range(4):
        visible, state = step(tx, visible, state, jax.grad(loss)(visible))
        gradient = jax.grad(noisy_loss)(clean, count)
        clean = jax.tree.map(lambda p, g: p - rate * (g + decay * p), clean, gradient)
        assert_close(clean_parameters(state, visible), clean, FLOAT32_STEPS)
    key = jax.random.fold_in(jax.random.key(seed), 4)
    assert_close(visible, perturb_scales(clean, SIGMA, key), FLOAT32_STEPS)


def other_scales() -> Any:
    """Parameters with scales of a LayerNorm and of weight normalization beside a `Scaled` node."""
    kernel = jnp.ones((3, 2))
    return {
        "dense": {"kernel": Scaled.from_kernel(kernel, -2)},
        "norm": {"scale": jnp.ones(4), "bias": jnp.zeros(4)},
        "weight_norm": {"kernel": WeightNormalized.from_kernel(kernel, -2)},
    }


def changed(tx: Any, params: Any) -> set[str]:
    """Returns the top-level names that a step without gradient changes."""
    after, _ = step(tx, params, tx.init(params), zeros(params))
    return {name for name in params if largest_difference(after[name], params[name]) > 0}


def test_scales_of_other_layers_are_never_noisy() -> None:
    assert changed(noise_injection(optax.sgd(0.1), 1.0, seed=0), other_scales()) == {"dense"}


@pytest.mark.parametrize("form", ["tree", "function"])
def test_where_says_which_leaves_are_noisy(form: str) -> None:
    chosen = {"dense": False, "norm": {"scale": True, "bias": False}, "weight_norm": False}
    where = chosen if form == "tree" else lambda params: chosen
    tx = noise_injection(optax.sgd(0.1), 1.0, seed=0, where=where)
    assert changed(tx, other_scales()) == {"norm"}


def test_a_stddev_per_layer() -> None:
    tx = noise_injection(optax.sgd(0.1), {"a": None, "b": 0.5}, seed=0)
    params = two_wide_layers()
    after, _ = step(tx, params, tx.init(params), zeros(params))
    assert not noise_of(after, "a").any()
    assert abs(noise_of(after, "b").std() / 0.5 - 1) < 4 / np.sqrt(2 * UNITS)


def test_without_noise_the_parameters_are_those_of_the_inner_optimizer() -> None:
    """Bit by bit, also for a step that is larger than the scale that it changes."""
    inner = optax.sgd(3.7, momentum=0.9)
    for stddev in (0, {"conv": None, "dense": None, "scaled": 0.0}):
        tx = noise_injection(inner, stddev, seed=0)
        actual = expected = example_params()
        state, inner_state = tx.init(actual), inner.init(expected)
        for _ in range(3):
            actual, state = step(tx, actual, state, example_gradients())
            expected, inner_state = step(inner, expected, inner_state, example_gradients())
        assert_equal(actual, expected)
        assert_equal(clean_parameters(state, actual), expected)


def test_edits_between_updates_are_lost() -> None:
    """The clean values are those of the state, whatever happened to the parameters."""
    tx, params = noise_injection(optax.sgd(0.1), 0.5, seed=2), example_params()
    visible, state = step(tx, params, tx.init(params), zeros(params))
    edited = jax.tree.map(lambda leaf: leaf, visible)
    node = visible["scaled"]["kernel"]
    edited["scaled"]["kernel"] = Scaled(node.kernel, 2 * node.scale, node.fan_in_axes)
    assert_equal(clean_parameters(state, edited), params)
    expected, after = step(tx, visible, state, zeros(params))
    visible, state = step(tx, edited, state, zeros(params))
    assert_close(visible, expected)
    assert_equal(state, after)
