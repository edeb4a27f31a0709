"""Parameter sets under vmap are independent; nodes built under vmap work outside it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import Scaled, clean_parameters, noise_injection
from tests.draws import float32
from tests.table import TABLE, Row, example
from tests.trees import assert_close, assert_equal, quick_jit, run, update_twice

SETS = 3


def stacked(seed: int) -> dict:
    """Three parameter sets, along a new leading axis."""
    sets = [example(10 * seed + number) for number in range(SETS)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *sets)


def one_set(tree: dict, number: int) -> dict:
    return jax.tree.map(lambda leaf: leaf[number], tree)


def stacked_nodes(seed: int) -> dict:
    """Nodes built under vmap, with positive axes, which count the axes inside vmap only."""
    draw = np.random.default_rng(seed)
    kernels = float32(draw.normal(size=(SETS, 4, 8)))
    nodes = jax.vmap(lambda kernel: Scaled.from_kernel(kernel, (0,)))(kernels)
    return {"conv": {}, "dense": {"kernel": nodes}, "scaled": {}}


def run_each(tx: optax.GradientTransformation, params: dict, gradients: dict) -> Any:
    """Like `run`, for all sets of a stack."""
    init, update = jax.jit(jax.vmap(tx.init)), quick_jit(jax.vmap(tx.update))
    return update_twice(init, update, params, gradients)


@pytest.mark.kept("sphere", "zero_sums", "centered")
def test_stacked_parameter_sets(row: Row) -> None:
    params, gradients = stacked(2), stacked(3)
    together = run_each(row.tx, params, gradients)
    for number in range(SETS):
        alone = run(row.tx, one_set(params, number), one_set(gradients, number))
        assert_close(one_set(together, number), alone)


@pytest.mark.parametrize("row", [row for row in TABLE if row.by_unit], ids=lambda row: row.name)
def test_nodes_built_under_vmap_are_constrained_per_unit(row: Row) -> None:
    params, gradients = stacked_nodes(4), stacked_nodes(5)
    assert_close(run(row.tx, params, gradients), run_each(row.tx, params, gradients))


def test_nodes_built_under_vmap_have_noise_per_unit() -> None:
    params = stacked_nodes(6)
    tx = noise_injection(optax.set_to_zero(), 1.0, seed=0)
    updates, state = tx.update(params, tx.init(params), params)
    noisy = optax.apply_updates(params, updates)
    node = noisy["dense"]["kernel"]
    kernel, scale = np.asarray(node.kernel, np.float64), np.asarray(node.scale, np.float64)
    assert len(np.unique(scale)) == SETS * 8
    assert_close(node.effective(), jnp.asarray(kernel * scale[:, None, :], jnp.float32))
    assert_equal(clean_parameters(state, noisy), params)
