"""State of noise injection: exact after many steps, and found inside any wrapper."""

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
#: Values of a clean scale: large, small, negative and zero.
GAMMA = [1.0, 1e-3, -2.5, 0.0, 1e4]


def tiny() -> Any:
    return {"kernel": Scaled(jnp.ones((2, 5)), jnp.array(GAMMA), (-2,))}


def zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)


def test_gamma_is_exact_after_many_steps_at_sigma_one() -> None:
    tx, params = noise_injection(optax.sgd(0.1), 1.0, seed=0), tiny()

    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        updates, state = tx.update(zeros(params), state, params)
        return (optax.apply_updates(params, updates), state), params["kernel"].scale[0]

    scan = jax.jit(lambda p: jax.lax.scan(step, (p, tx.init(p)), length=MANY))
    (visible, state), scales = scan(params)
    assert int(state.step) == MANY
    # The scale is noisy all the way, and 1 + n passes close to 0, where a division loses gamma.
    assert np.asarray(scales).std() > 0.9
    assert np.abs(np.asarray(scales)).min() < 1e-3
    assert_equal(clean_parameters(state, visible), params)


NOISE = noise_injection(optax.sgd(0.1), 1.0, seed=1)
SCALES_MASK = {"conv": False, "dense": False, "scaled": True}
LABELS = {"conv": "plain", "dense": "plain", "scaled": "noisy"}


@pytest.mark.usefixtures("standard_promotion")
def test_clean_parameters_are_found_in_one_wrapper_in_another() -> None:
    """`tests/guides/test_compose.py` has each wrapper by itself."""
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
    """Two layers with scales: one in the place of a normalization, and a LayerNorm."""

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


def test_a_stddev_per_unit() -> None:
    key = jax.random.key(0)
    one = perturb_scales(PARAMS, 1.0, key)["kernel"].scale - 1
    stddev = jnp.array([0.0, 0.5, 1.0, 2.0])
    actual = perturb_scales(PARAMS, stddev, key)["kernel"].scale - 1
    np.testing.assert_allclose(actual, stddev * one, rtol=1e-5, atol=1e-6)
