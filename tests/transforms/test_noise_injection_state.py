"""The state of noise injection: intact after many steps, restarts, shards, and in any wrapper."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxnorm import Scaled, clean_parameters, noise_injection, perturb_scales
from jaxnorm.nnx import ScaleAndBias
from tests.table import example_params
from tests.trees import assert_equal, by_path, quick_jit

MANY = 20_000
#: A clean scale with values of every kind: large, small, negative and zero.
GAMMA = [1.0, 1e-3, -2.5, 0.0, 1e4]


def tiny() -> Any:
    return {"kernel": Scaled(jnp.ones((2, 5)), jnp.array(GAMMA), (-2,))}


def zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def test_gamma_is_intact_after_many_steps_at_sigma_one() -> None:
    tx, params = noise_injection(optax.sgd(0.1), 1.0, seed=0), tiny()

    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        updates, state = tx.update(zeros(params), state, params)
        return (optax.apply_updates(params, updates), state), params["kernel"].scale[0]

    scan = jax.jit(lambda p: jax.lax.scan(step, (p, tx.init(p)), length=MANY))
    (visible, state), seen = scan(params)
    assert int(state.step) == MANY
    # It was noisy all the way: 1 + n passes close to zero, where a division would lose gamma.
    assert np.asarray(seen).std() > 0.9
    assert np.abs(np.asarray(seen)).min() < 1e-3
    assert_equal(clean_parameters(state, visible), params)


NOISE = noise_injection(optax.sgd(0.1), 1.0, seed=1)
SCALES_MASK = {"conv": False, "dense": False, "scaled": True}
LABELS = {"conv": "plain", "dense": "plain", "scaled": "noisy"}


@pytest.mark.usefixtures("standard_promotion")
def test_clean_parameters_are_found_in_one_wrapper_in_another() -> None:
    """Each of them by itself, `tests/guides/test_compose.py` has."""
    finite = optax.apply_if_finite(optax.masked(optax.chain(NOISE), SCALES_MASK), 3)
    steps = optax.MultiSteps(optax.partition({"noisy": finite, "plain": optax.sgd(0.2)}, LABELS), 2)
    tx, params = optax.chain(steps), example_params()
    state, update, visible = tx.init(params), quick_jit(tx.update), params
    for _ in range(2):
        updates, state = update(zeros(params), state, visible)
        visible = optax.apply_updates(visible, updates)
    noisy = {path for path, x in by_path(visible).items() if not _same(x, by_path(params)[path])}
    assert noisy == {"scaled/kernel/scale"}
    assert_equal(clean_parameters(state, visible), params)


def _same(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b))


class Model(nnx.Module):
    """A layer with the scale that stands for a normalization's, and one with a LayerNorm's."""

    def __init__(self) -> None:
        self.scaled = ScaleAndBias(4)
        self.norm = nnx.LayerNorm(4, rngs=nnx.Rngs(0))


def test_clean_parameters_are_found_in_an_nnx_optimizer() -> None:
    model = Model()
    optimizer = nnx.Optimizer(model, NOISE, wrt=nnx.Param)
    before = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    for _ in range(2):
        optimizer.update(model, jax.tree.map(jnp.zeros_like, nnx.state(model, nnx.Param)))
    visible = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    assert not _same(visible["scaled"]["channel_scale"], before["scaled"]["channel_scale"])
    assert _same(visible["norm"]["scale"], before["norm"]["scale"])
    clean = clean_parameters(optimizer.opt_state, nnx.state(model, nnx.Param))
    assert_equal(nnx.to_pure_dict(clean), before)
    assert_equal(clean_parameters(optimizer.opt_state, visible), before)


PARAMS = {"kernel": Scaled.from_kernel(jnp.ones((3, 4)), -2)}


def test_each_unit_has_its_own() -> None:
    key = jax.random.key(0)
    one = perturb_scales(PARAMS, 1.0, key)["kernel"].scale - 1
    stddev = jnp.array([0.0, 0.5, 1.0, 2.0])
    got = perturb_scales(PARAMS, stddev, key)["kernel"].scale - 1
    np.testing.assert_allclose(got, stddev * one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (5,), (1, 4)])
def test_those_of_other_units_are_refused(shape: tuple[int, ...]) -> None:
    """Broadcast, a layer of one unit would become as many as there are deviations."""
    tx = noise_injection(optax.sgd(0.1), jnp.full(shape, 0.1), seed=0)
    with pytest.raises(ValueError, match=r"the stddev of 'kernel/scale' has .*; wanted \(4,\)"):
        tx.update(PARAMS, tx.init(PARAMS), PARAMS)


@pytest.mark.parametrize("worst", [-0.5, float("nan")])
def test_what_no_deviation_can_be_is_refused(worst: float) -> None:
    for stddev in (worst, {"kernel": worst}, jnp.full(4, 0.1).at[3].set(worst)):
        with pytest.raises(ValueError, match=rf"stddev is {worst}.*wanted a number of at least 0"):
            noise_injection(optax.sgd(0.1), stddev, seed=0).init(PARAMS)
