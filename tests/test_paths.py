"""Leaves by their keys: what looks alike when it is joined, and what only looks like a box."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxnorm import (
    Scaled,
    clean_parameters,
    clip_by_layer_norm,
    collect_preactivations,
    flax_layout,
    layout_from_rules,
    noise_injection,
    project,
    reparametrize,
    torch_layout,
)
from tests import oracles
from tests.draws import draw
from tests.tolerances import FLOAT32


def colliding(nested: str = "b", flat: str = "a/b") -> Any:
    """Two layers whose joined paths are one: a/b/kernel."""
    return {"a": {nested: {"kernel": draw(0, 4, 3)}}, flat: {"kernel": 5 * draw(1, 3, 2)}}


def network(nested: str = "b", flat: str = "a/b") -> Any:
    return lambda params, x: x @ params["a"][nested]["kernel"] @ params[flat]["kernel"]


X = draw(2, 8, 4)


def test_clean_scales_go_back_to_where_they_came_from() -> None:
    raw = reparametrize(colliding(), Scaled)
    tx = noise_injection(optax.sgd(0.1), stddev=1.0, seed=0)
    state = tx.init(raw)
    updates, state = tx.update(jax.tree.map(jnp.zeros_like, raw), state, raw)
    clean = clean_parameters(state, optax.apply_updates(raw, updates))
    assert clean["a"]["b"]["kernel"].scale.tolist() == [1.0] * 3
    assert clean["a/b"]["kernel"].scale.tolist() == [1.0] * 2


def test_a_setting_reaches_its_own_leaf() -> None:
    radii = {"a": {"b": 1.0}, "a/b": 3.0}
    landed = project(colliding(), squared_radius=radii)
    for kernel, radius in ((landed["a"]["b"]["kernel"], 1.0), (landed["a/b"]["kernel"], 3.0)):
        _, norms = oracles.sums_and_squared_norms(kernel, (-2,))
        np.testing.assert_allclose(norms, radius, **FLOAT32)


def test_layers_are_clipped_one_by_one() -> None:
    updates = jax.tree.map(jnp.ones_like, colliding())
    tx = clip_by_layer_norm(1.0)
    clipped, _ = tx.update(updates, tx.init(updates))
    norms = [float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(clipped)]
    np.testing.assert_allclose(norms, 1.0, **FLOAT32)


def test_a_slash_alone_is_no_collision() -> None:
    """Haiku's modules are called so."""
    params = {"net/~/linear": {"kernel": draw(0, 4, 3)}}
    _, layers = collect_preactivations(lambda p, x: x @ p["net/~/linear"]["kernel"], params, X)
    assert list(layers) == ["net/~/linear/kernel"]


class Attention(eqx.Module):
    query: jax.Array
    key: jax.Array
    value: jax.Array


def test_a_field_called_value_is_a_name() -> None:
    model = {"head": Attention(draw(0, 3, 2), draw(1, 3, 2), draw(2, 3, 2))}
    axes = layout_from_rules([("head/value$", -1)])(model)["head"]
    assert (axes.query, axes.key, axes.value) == (None, None, (-1,))
    tx = clip_by_layer_norm(1.0)
    clipped, _ = tx.update(model, tx.init(model))
    norms = [float(jnp.square(leaf).sum()) for leaf in jax.tree.leaves(clipped)]
    np.testing.assert_allclose(sum(norms), 1.0, **FLOAT32)


BOXES = {
    "linen": lambda kernel: nn.Partitioned(kernel, names=("in", "out")),
    "nnx around a node": lambda kernel: nnx.Param(Scaled.from_kernel(kernel, -2)),
    "one in the other": lambda kernel: nnx.Param(nn.Partitioned(kernel, names=("in", "out"))),
}


@pytest.mark.parametrize("box", BOXES)
def test_boxes_have_no_name(box: str) -> None:
    params = {"dense": {"kernel": BOXES[box](draw(0, 4, 3))}}
    axes = [leaf for leaf in jax.tree.leaves(flax_layout(params), is_leaf=is_axes) if leaf]
    assert axes == [(-2,)]
    (landed, *_) = jax.tree.leaves(project(params))
    wanted = oracles.projected(draw(0, 4, 3), (-2,), 2.0, True)
    np.testing.assert_allclose(landed, wanted, **FLOAT32)


def is_axes(x: Any) -> bool:
    return isinstance(x, tuple)


def test_a_box_of_ones_own_has_a_name() -> None:
    """Only what Flax makes is opened without a word; `weight/value` is no weight."""

    class Box(eqx.Module):
        value: jax.Array

    with pytest.raises(ValueError, match=r"paths are: weight/value"):
        project({"weight": Box(draw(0, 4, 3))}, layout=torch_layout)


def test_boxes_and_variables_keep_their_kind() -> None:
    boxed = {"kernel": nn.Partitioned(jnp.ones((3, 2)), names=(None, "model"))}
    assert flax_layout(boxed) == {"kernel": nn.Partitioned((-2,), names=(None, "model"))}
    state = nnx.state(nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0))))
    assert nnx.to_pure_dict(flax_layout(state))["layers"][0] == {"kernel": (-2,), "bias": None}


def test_a_bias_is_no_kernel_whatever_its_rank() -> None:
    """Equinox keeps a convolution's bias as (out, 1, 1)."""
    layout = torch_layout(eqx.filter(eqx.nn.Conv2d(2, 4, 3, key=jax.random.key(0)), eqx.is_array))
    assert (layout.weight, layout.bias) == ((-3, -2, -1), None)
