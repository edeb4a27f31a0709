"""`clip_by_layer_norm` against float64 NumPy."""

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

MATRIX = jnp.ones((3, 2))
LAYERS = ("conv", "dense", "scaled")


def clip(gradients: Any, max_norm: Any) -> Any:
    tx = clip_by_layer_norm(max_norm)
    return tx.update(gradients, tx.init(gradients))[0]


def joint_norm(layer: Any) -> float:
    flat = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(layer)]
    return float(np.linalg.norm(np.concatenate(flat)))


def test_each_layer_is_scaled_by_its_joint_norm() -> None:
    gradients = example_gradients()
    norms = {name: joint_norm(gradients[name]) for name in LAYERS}
    limit = min(norms.values()) * 1.01
    actual = clip(gradients, limit)
    clipped = [name for name in LAYERS if norms[name] > limit]
    assert len(clipped) == 2
    for name in LAYERS:
        factor = limit / norms[name] if name in clipped else 1.0
        for leaf, before in zip(
            *map(jax.tree.leaves, (actual[name], gradients[name])), strict=True
        ):
            np.testing.assert_allclose(leaf, factor * np.asarray(before, np.float64), **FLOAT32)


def test_a_node_is_one_leaf_of_its_parent() -> None:
    """Kernel 3, scale 4 and bias 12 of one layer have the joint norm 13."""
    node = Scaled(jnp.array([[3.0]]), jnp.array([4.0]), (-2,))
    actual = clip({"dense": {"kernel": node, "bias": jnp.array([12.0])}}, 6.5)["dense"]
    values = [actual["kernel"].kernel.item(), actual["kernel"].scale.item(), actual["bias"].item()]
    np.testing.assert_allclose(values, [1.5, 2.0, 6.0], **FLOAT32)


def test_nested_layers_and_leaves_of_the_root() -> None:
    gradients = {"scale": jnp.array([2.0]), "block": {"a": {"kernel": jnp.array([[4.0]])}}}
    actual = clip(gradients, 1.0)
    np.testing.assert_allclose([actual["scale"].item(), actual["block"]["a"]["kernel"].item()], 1.0)


def test_the_derivative_at_zero_is_the_identity() -> None:
    gradient = {"layer": {"kernel": jnp.zeros((3, 2))}}
    tangent = {"layer": {"kernel": jnp.arange(6.0).reshape(3, 2)}}
    clip = lambda g: clip_by_layer_norm(1.0).update(g, optax.EmptyState())[0]  # noqa: E731
    pull = jax.vjp(clip, gradient)[1]
    np.testing.assert_array_equal(pull(tangent)[0]["layer"]["kernel"], tangent["layer"]["kernel"])


def test_the_joint_norm_of_float16_gradients_is_computed_in_float32() -> None:
    """The sum of squares is 4e6, and float16 overflows at 65504."""
    gradients = {"dense": {"kernel": jnp.full((10, 10), 200.0, jnp.float16)}}
    actual = clip(gradients, 1.0)["dense"]["kernel"]
    np.testing.assert_allclose(np.asarray(actual, np.float64), 0.1, rtol=2.0**-11)


@pytest.mark.parametrize("bad", [1e25, np.inf, np.nan])
def test_layers_that_overflow_are_nan_and_apply_if_finite_skips_them(bad: float) -> None:
    """The square of 1e25 is infinite in float32."""
    gradients = example_gradients()
    gradients["dense"]["kernel"] = gradients["dense"]["kernel"].at[0, 0].set(bad)
    actual = clip(gradients, 1.0)
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(actual["dense"]))
    tx = optax.chain(clip_by_layer_norm(1.0), optax.apply_if_finite(optax.sgd(1.0), 2))
    step, state = tx.update(gradients, tx.init(gradients))
    assert int(state[1].notfinite_count) == 1
    assert not any(leaf.any() for leaf in jax.tree.leaves(step))
    np.testing.assert_allclose(
        [joint_norm(actual[name]) for name in ("conv", "scaled")], 1.0, **FLOAT32
    )


@pytest.mark.parametrize("max_norm", [1e3, float("inf"), np.float32("inf"), jnp.array(jnp.inf)])
def test_gradients_below_the_limit_are_unchanged(max_norm: Any) -> None:
    gradients = example_gradients()
    gradients["conv"]["bias"] = jnp.zeros(8)
    assert_equal(clip(gradients, max_norm), gradients)


def test_a_traced_limit() -> None:
    """The joint norm of 3 and 4 is 5."""
    gradients = {"dense": {"a": jnp.array(3.0), "b": jnp.array(4.0)}}
    clipped = jax.jit(lambda limit: clip(gradients, limit)["dense"]["b"])
    np.testing.assert_allclose([clipped(1.0), clipped(6.0), clipped(0.0)], [0.8, 4, 0], **FLOAT32)


#: Gradients whose matrices have no module of their own, and where the warning finds them.
FLAT: dict[str, tuple[Any, str]] = {
    "flat names": ({"w1": MATRIX, "b1": jnp.ones(2), "w2": MATRIX}, "the tree itself"),
    "a list": ([MATRIX, MATRIX], "the tree itself"),
    "a list of kernels": ({"kernels": [MATRIX, MATRIX], "scale": jnp.ones(2)}, "'kernels'"),
    "a tuple inside": ({"body": {"weights": (MATRIX, MATRIX)}}, "'body/weights'"),
}


@pytest.mark.parametrize("name", FLAT)
def test_layers_without_a_parent_of_their_own_are_warned_of(name: str) -> None:
    gradients, place = FLAT[name]
    tx = clip_by_layer_norm(1.0)
    with pytest.warns(UserWarning, match=f"several matrices in {place}.*together"):
        tx.update(gradients, tx.init(gradients))


@pytest.mark.parametrize(
    "gradients",
    [
        {"kernel": MATRIX, "bias": jnp.ones(2)},
        [{"kernel": MATRIX}, {"kernel": MATRIX}],
        [[MATRIX, jnp.ones(2)], [MATRIX, jnp.ones(2)]],
        {"cell": {"weight_ih": MATRIX, "weight_hh": MATRIX}},
    ],
)
def test_layers_with_a_parent_are_not_warned_of(gradients: Any) -> None:
    tx = clip_by_layer_norm(1.0)
    tx.update(gradients, tx.init(gradients))
