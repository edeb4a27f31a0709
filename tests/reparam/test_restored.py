"""Nodes that a checkpoint library has made dicts of, and dicts that only look like them."""

import jax.numpy as jnp
import orbax.checkpoint
import pytest

from jaxnorm import Scaled, effective, reparametrize


def test_a_node_restored_without_a_target_is_named(tmp_path: object) -> None:
    raw = reparametrize({"dense": {"kernel": jnp.ones((3, 2)), "bias": jnp.ones(2)}}, Scaled)
    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(f"{tmp_path}/raw", raw)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(f"{tmp_path}/raw")
        with pytest.raises(TypeError, match=r"'dense/kernel'.*target"):
            effective(restored)
        kept = checkpointer.restore(f"{tmp_path}/raw", raw)
    assert effective(kept)["dense"]["kernel"].shape == (3, 2)


def test_a_layer_with_a_scale_of_its_own_is_left_alone() -> None:
    params = {"dense": {"kernel": jnp.ones((3, 2)), "scale": jnp.ones(2)}}
    assert effective(params) == params
