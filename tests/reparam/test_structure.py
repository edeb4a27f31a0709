"""Nodes of different kinds have different tree structures, and survive checkpoints."""

import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
import pytest

from jaxnorm import effective
from jaxnorm.spectral import power_iteration
from tests.reparam.table import TABLE, random_node
from tests.trees import assert_equal


def test_nodes_of_different_kinds_have_different_structures() -> None:
    """Equal structures would share a program of `jit`."""
    cases = itertools.product(TABLE, ("dense", "dense_out_in"))
    structures = {
        (row.name, case): jax.tree.structure(random_node(row, case)) for row, case in cases
    }
    for (name, left), (second, right) in itertools.combinations(structures.items(), 2):
        assert left != right, (name, second)


@pytest.mark.usefixtures("standard_promotion")
def test_orbax_restores_every_node_and_its_optimizer(tmp_path: Path) -> None:
    raw = {row.name: {"kernel": random_node(row, "dense")} for row in TABLE}
    raw["half"] = {"kernel": random_node(TABLE[0], "conv", jnp.bfloat16)}
    state = optax.adam(0.1).init(raw)
    saved = {"raw": raw, "state": state, "vectors": power_iteration(raw)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step", saved)
        checkpointer.wait_until_finished()
        assert_equal(checkpointer.restore(tmp_path / "step", jax.eval_shape(lambda: saved)), saved)


def test_effective_keeps_a_layer_with_a_scale() -> None:
    params = {"dense": {"kernel": jnp.ones((3, 2)), "scale": jnp.ones(2)}}
    assert effective(params) == params
