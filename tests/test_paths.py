"""Leaves are identified by their keys, not by joined paths; boxes of Flax have no name."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxnorm as jn
from jaxnorm import Scaled, flax_layout, layout_from_rules, torch_layout
from tests import oracles
from tests.draws import draw
from tests.tolerances import FLOAT32


def colliding() -> Any:
    """Two layers with the joined path a/b/kernel."""
    return {"a": {"b": {"kernel": draw(0, 4, 3)}}, "a/b": {"kernel": 5 * draw(1, 3, 2)}}


@pytest.mark.slow
def test_clean_scales_return_to_their_layers() -> None:
    raw = jn.reparametrize(colliding(), Scaled)
    tx = jn.noise_injection(optax.sgd(0.1), stddev=1.0, seed=0)
    state = tx.init(raw)
    updates, state = tx.update(jax.tree.map(jnp.zeros_like, raw), state, raw)
    clean = jn.clean_parameters(state, optax.apply_updates(raw, updates))
    assert clean["a"]["b"]["kernel"].scale.tolist() == [1.0] * 3
    assert clean["a/b"]["kernel"].scale.tolist() == [1.0] * 2


def test_settings_reach_their_layers() -> None:
    projected = jn.project(colliding(), squared_radius={"a": {"b": 1.0}, "a/b": 3.0})
    for layer, squared_radius in ((projected["a"]["b"], 1.0), (projected["a/b"], 3.0)):
        _, norms = oracles.sums_and_squared_norms(layer["kernel"], (-2,))
        np.testing.assert_allclose(norms, squared_radius, **FLOAT32)


def test_layers_are_clipped_separately() -> None:
    updates = jax.tree.map(jnp.ones_like, colliding())
    tx = jn.clip_by_layer_norm(1.0)
    clipped, _ = tx.update(updates, tx.init(updates))
    norms = [float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(clipped)]
    np.testing.assert_allclose(norms, 1.0, **FLOAT32)


def test_keys_may_contain_slashes() -> None:
    """Haiku names its modules so."""
    params = {"net/~/linear": {"kernel": draw(0, 4, 3)}}

    def apply(params: Any, x: Any) -> Any:
        return x @ params["net/~/linear"]["kernel"]

    _, preactivations = jn.collect_preactivations(jn.read(apply, params, draw(2, 8, 4)))
    assert list(preactivations) == ["net/~/linear/kernel"]


class Attention(eqx.Module):
    query: jax.Array
    key: jax.Array
    value: jax.Array


def test_a_field_called_value_is_part_of_the_path() -> None:
    model = {"head": Attention(draw(0, 3, 2), draw(1, 3, 2), draw(2, 3, 2))}
    axes = layout_from_rules([("head/value$", -1)])(model)["head"]
    assert (axes.query, axes.key, axes.value) == (None, None, (-1,))
    tx = jn.clip_by_layer_norm(1.0)
    clipped, _ = tx.update(model, tx.init(model))
    squares = [float(jnp.square(leaf).sum()) for leaf in jax.tree.leaves(clipped)]
    np.testing.assert_allclose(sum(squares), 1.0, **FLOAT32)


BOXES = {
    "linen": lambda kernel: nn.Partitioned(kernel, names=("in", "out")),
    "nnx around a node": lambda kernel: nnx.Param(Scaled.from_kernel(kernel, -2)),
    "nnx around linen": lambda kernel: nnx.Param(nn.Partitioned(kernel, names=("in", "out"))),
}


@pytest.mark.parametrize("box", BOXES)
def test_boxes_are_no_part_of_the_path(box: str) -> None:
    params = {"dense": {"kernel": BOXES[box](draw(0, 4, 3))}}
    leaves = jax.tree.leaves(flax_layout(params), is_leaf=lambda x: isinstance(x, tuple))
    assert [axes for axes in leaves if axes] == [(-2,)]
    (kernel, *_) = jax.tree.leaves(jn.project(params))
    np.testing.assert_allclose(
        kernel, oracles.projected(draw(0, 4, 3), (-2,), 2.0, True), **FLOAT32
    )


def test_boxes_of_users_are_part_of_the_path() -> None:
    class Box(eqx.Module):
        value: jax.Array

    with pytest.raises(ValueError, match="weight/value"):
        jn.project({"weight": Box(draw(0, 4, 3))}, layout=torch_layout)


def test_boxes_keep_their_type() -> None:
    boxed = {"kernel": nn.Partitioned(jnp.ones((3, 2)), names=(None, "model"))}
    assert flax_layout(boxed) == {"kernel": nn.Partitioned((-2,), names=(None, "model"))}
    state = nnx.state(nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0))))
    assert nnx.to_pure_dict(flax_layout(state))["layers"][0] == {"kernel": (-2,), "bias": None}


@pytest.mark.slow
def test_a_bias_of_any_rank_is_free() -> None:
    """Equinox keeps a convolution's bias as (out, 1, 1)."""
    layout = torch_layout(eqx.filter(eqx.nn.Conv2d(2, 4, 3, key=jax.random.key(0)), eqx.is_array))
    assert (layout.weight, layout.bias) == ((-3, -2, -1), None)
