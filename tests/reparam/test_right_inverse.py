"""`from_kernel` is the right inverse of `effective`: alone, nested, stacked, under transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnorm import CenteredWeightNormalized, WeightNormalized
from tests.reparam.table import FLOAT32, SHAPES, TABLE, Row, normal, random_node
from tests.reparam.trees import assert_near, oracle_start, oracle_value

SCALING = [row for row in TABLE if row.scales]


def float64(array: jax.Array) -> np.ndarray:
    return np.asarray(array, np.float64)


@pytest.mark.kept("scaled_lcw", "sn", "ws")
def test_effective_of_from_kernel(row: Row) -> None:
    kernels = {case: 0.3 + normal(7, shape) for case, (shape, _) in SHAPES.items()}

    @jax.jit
    def starts(kernels: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {case: row.make(k, SHAPES[case][1]).effective() for case, k in kernels.items()}

    for case, actual in starts(kernels).items():
        expected = oracle_start(row, kernels[case], SHAPES[case][1])
        assert_near(actual, expected, FLOAT32, case)


@pytest.mark.parametrize("outer", TABLE, ids=lambda row: row.name)
@pytest.mark.parametrize("inner", [TABLE[0], TABLE[1]], ids=lambda row: row.name)
def test_from_kernel_of_a_node(outer: Row, inner: Row) -> None:
    node = random_node(inner, "dense")
    actual = jax.jit(lambda n: outer.make(n, n.fan_in_axes).effective())(node)
    kernel = oracle_value(inner, node)
    assert_near(actual, oracle_start(outer, kernel, (-2,)), FLOAT32)


@pytest.mark.kept("lcw-layer")
@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
@pytest.mark.parametrize("row", SCALING, ids=lambda row: row.name)
def test_rescaled(row: Row, per_unit: bool) -> None:
    node = random_node(row, "attention_out")
    factor = jnp.asarray([[[0.5, 2.0, 3.0, 0.1, 1.0]]] if per_unit else 2.5)
    actual = jax.jit(lambda n, f: n.rescaled(f))(node, factor)
    assert jax.tree.structure(actual) == jax.tree.structure(node)
    assert_near(actual.effective(), oracle_value(row, node) * float64(factor), FLOAT32)
    half = random_node(row, "attention_out", jnp.bfloat16).rescaled(factor)
    assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {jnp.dtype(jnp.bfloat16)}


def test_a_rescaled_direction_has_the_norm_of_the_rescaled_kernel() -> None:
    """The steps of v scale with 1 / ||v||, so its length is part of the method."""
    kernel = normal(3, (4, 3))
    for kind in (WeightNormalized, CenteredWeightNormalized):
        direction = kind.from_kernel(kernel, -2).rescaled(jnp.asarray(2.0)).direction
        centered = float64(kernel) - float64(kernel).mean(0) * (kind is CenteredWeightNormalized)
        norms = 2 * np.linalg.norm(centered, axis=0)
        np.testing.assert_allclose(np.linalg.norm(float64(direction), axis=0), norms, rtol=1e-6)


def test_rescaled_keeps_a_spectral_norm() -> None:
    node = random_node(next(row for row in TABLE if row.name == "sn"), "dense")
    assert_near(node.rescaled(jnp.asarray(3.0)).effective(), float64(node.effective()), FLOAT32)


@pytest.mark.kept("wn", "scaled")
def test_effective_inside_and_outside_of_vmap_and_scan(row: Row) -> None:
    kernels = normal(6, (3, 3, 3, 2, 4))
    built = jax.vmap(lambda k: row.make(k, (0, 1, 2)))(kernels)
    outside = jax.jit(lambda n: n.effective())(built)
    inside = jax.jit(jax.vmap(lambda n: n.effective()))(built)
    _, scanned = jax.lax.scan(lambda carry, n: (carry, n.effective()), 0, built)
    for number, kernel in enumerate(kernels):
        expected = oracle_start(row, kernel, (-4, -3, -2))
        for stacked in (outside, inside, scanned):
            assert_near(stacked[number], expected, FLOAT32)


def test_abstract_evaluation(row: Row) -> None:
    shape = jax.ShapeDtypeStruct((3, 3, 2, 4), jnp.bfloat16)
    node = jax.eval_shape(lambda k: row.make(k, (0, 1, 2)), shape)
    assert node.fan_in_axes == (-4, -3, -2)
    assert jax.eval_shape(lambda n: n.effective(), node) == shape
    assert {leaf.dtype for leaf in jax.tree.leaves(node)} == {jnp.dtype(jnp.bfloat16)}
    units = [leaf.shape for leaf in jax.tree.leaves(node)][1:]
    assert units in ([], [(4,)])
