"""Clipping layer by layer, against float64 NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import Scaled, clip_by_layer_norm
from tests.table import example_gradients
from tests.tolerances import FLOAT32
from tests.trees import assert_equal

LAYERS = ("conv", "dense", "scaled")


def clip(gradients: Any, max_norm: Any) -> Any:
    tx = clip_by_layer_norm(max_norm)
    return tx.update(gradients, tx.init(gradients))[0]


def joint_norm(layer: Any) -> float:
    flat = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(layer)]
    return float(np.linalg.norm(np.concatenate(flat)))


def test_each_layer_is_scaled_by_its_own_joint_norm() -> None:
    gradients = example_gradients()
    norms = {name: joint_norm(gradients[name]) for name in LAYERS}
    # One layer is below the limit: the smallest by a little.
    limit = min(norms.values()) * 1.01
    got = clip(gradients, limit)
    clipped = [name for name in LAYERS if norms[name] > limit]
    assert len(clipped) == 2
    for name in LAYERS:
        factor = limit / norms[name] if name in clipped else 1.0
        for leaf, before in zip(*map(jax.tree.leaves, (got[name], gradients[name])), strict=True):
            np.testing.assert_allclose(leaf, factor * np.asarray(before, np.float64), **FLOAT32)


def test_a_node_is_one_leaf_of_its_parent() -> None:
    """Kernel 3, scale 4 and bias 12 of one layer: a joint norm of 13, not 5 and 12."""
    node = Scaled(jnp.array([[3.0]]), jnp.array([4.0]), (-2,))
    got = clip({"dense": {"kernel": node, "bias": jnp.array([12.0])}}, 6.5)["dense"]
    values = [got["kernel"].kernel.item(), got["kernel"].scale.item(), got["bias"].item()]
    np.testing.assert_allclose(values, [1.5, 2.0, 6.0], **FLOAT32)


def test_nested_layers_and_leaves_at_the_top() -> None:
    gradients = {"scale": jnp.array([2.0]), "block": {"a": {"kernel": jnp.array([[4.0]])}}}
    got = clip(gradients, 1.0)
    np.testing.assert_allclose([got["scale"].item(), got["block"]["a"]["kernel"].item()], 1.0)


def test_at_zero_gradients_the_derivative_is_the_identity() -> None:
    gradient = {"layer": {"kernel": jnp.zeros((3, 2))}}
    tangent = {"layer": {"kernel": jnp.arange(6.0).reshape(3, 2)}}
    clip = lambda g: clip_by_layer_norm(1.0).update(g, optax.EmptyState())[0]  # noqa: E731
    pull = jax.vjp(clip, gradient)[1]
    np.testing.assert_array_equal(pull(tangent)[0]["layer"]["kernel"], tangent["layer"]["kernel"])


def test_the_joint_norm_of_narrow_gradients_is_taken_wide() -> None:
    """In float16 the sum of squares would overflow at 65504: here it is 4e6."""
    gradients = {"dense": {"kernel": jnp.full((10, 10), 200.0, jnp.float16)}}
    got = clip(gradients, 1.0)["dense"]["kernel"]
    np.testing.assert_allclose(np.asarray(got, np.float64), 0.1, rtol=2.0**-11)


@pytest.mark.parametrize("bad", [1e25, np.inf, np.nan])
def test_what_overflows_is_nan_and_skipped_by_apply_if_finite(bad: float) -> None:
    """1e25 squared is infinite in float32; zeros in its place would look like a step."""
    gradients = example_gradients()
    gradients["dense"]["kernel"] = gradients["dense"]["kernel"].at[0, 0].set(bad)
    got = clip(gradients, 1.0)
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(got["dense"]))
    tx = optax.chain(clip_by_layer_norm(1.0), optax.apply_if_finite(optax.sgd(1.0), 2))
    step, state = tx.update(gradients, tx.init(gradients))
    assert int(state[1].notfinite_count) == 1
    assert not any(leaf.any() for leaf in jax.tree.leaves(step))
    np.testing.assert_allclose(
        [joint_norm(got[name]) for name in ("conv", "scaled")], 1.0, **FLOAT32
    )


@pytest.mark.parametrize("max_norm", [1e3, float("inf"), np.float32("inf"), jnp.array(jnp.inf)])
def test_below_the_limit_no_bit_changes(max_norm: Any) -> None:
    gradients = example_gradients()
    gradients["conv"]["bias"] = jnp.zeros(8)
    assert_equal(clip(gradients, max_norm), gradients)


def test_a_traced_limit() -> None:
    """3-4-5: to the limit where it is less than 5."""
    gradients = {"dense": {"a": jnp.array(3.0), "b": jnp.array(4.0)}}
    clipped = jax.jit(lambda limit: clip(gradients, limit)["dense"]["b"])
    np.testing.assert_allclose([clipped(1.0), clipped(6.0), clipped(0.0)], [0.8, 4, 0], **FLOAT32)


@pytest.mark.parametrize("max_norm", [0.0, np.float32(-1), float("nan"), jnp.array(-1.0)])
def test_the_limit_must_be_positive(max_norm: Any) -> None:
    with pytest.raises(ValueError, match=r"max_norm is .*wanted a positive number"):
        clip_by_layer_norm(max_norm)
