"""Clipping layer by layer, against float64 NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxnorm import Scaled, clip_by_layer_norm
from tests.table import example_gradients
from tests.tolerances import FLOAT32, FLOAT64

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


def test_a_layer_below_the_limit_is_unchanged_to_the_bit() -> None:
    gradients = example_gradients()
    for got, wanted in zip(*map(jax.tree.leaves, (clip(gradients, 1e3), gradients)), strict=True):
        np.testing.assert_array_equal(got, wanted)


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


def test_zero_gradients_stay_zero() -> None:
    zeros = jax.tree.map(jnp.zeros_like, example_gradients())
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(clip(zeros, 1.0)))


@pytest.mark.parametrize("size", [1e-30, 2e-38])
def test_gradients_whose_squares_underflow_are_unchanged(size: float) -> None:
    gradients = {"dense": {"kernel": jnp.full((3, 2), size)}}
    np.testing.assert_array_equal(
        clip(gradients, 1.0)["dense"]["kernel"], gradients["dense"]["kernel"]
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_layer_that_is_not_finite_becomes_nan_and_spares_the_others(bad: float) -> None:
    gradients = example_gradients()
    gradients["dense"]["kernel"] = gradients["dense"]["kernel"].at[0, 0].set(bad)
    got = clip(gradients, 1.0)
    assert np.isnan(got["dense"]["kernel"][0, 0])
    assert not np.isfinite(optax.tree.norm(got["dense"]))
    np.testing.assert_allclose(
        [joint_norm(got[name]) for name in ("conv", "scaled")], 1.0, **FLOAT32
    )


def test_the_joint_norm_of_narrow_gradients_is_taken_wide() -> None:
    """In float16 the sum of squares would overflow at 65504: here it is 4e6."""
    gradients = {"dense": {"kernel": jnp.full((10, 10), 200.0, jnp.float16)}}
    got = clip(gradients, 1.0)["dense"]["kernel"]
    np.testing.assert_allclose(np.asarray(got, np.float64), 0.1, rtol=2.0**-11)


def test_in_float64_the_norm_is_float64() -> None:
    with jax.enable_x64(True):
        gradient = np.random.default_rng(0).normal(size=(6, 4))
        got = clip({"dense": {"kernel": jnp.asarray(gradient)}}, 1.0)["dense"]["kernel"]
        np.testing.assert_allclose(got, gradient / np.linalg.norm(gradient), **FLOAT64)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, float("nan")])
def test_the_limit_must_be_positive(max_norm: float) -> None:
    with pytest.raises(ValueError, match=r"max_norm is .*wanted a positive number"):
        clip_by_layer_norm(max_norm)
