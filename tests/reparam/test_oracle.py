"""Values and gradients of every node against dense bases, dense Jacobians and an SVD in float64."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.oracles import rows
from tests.reparam.oracles import householder_basis, qr_basis
from tests.reparam.table import (
    DIFFERENCES,
    FLOAT32,
    FLOAT64,
    SHAPES,
    TABLE,
    Row,
    normal,
    random_node,
    storage_tolerance,
)
from tests.reparam.trees import (
    assert_near,
    oracle_gradients,
    oracle_value,
    value_and_gradients,
)


def check(row: Row, cases: Iterable[str], dtype: type) -> None:
    """Value and gradients of random nodes of these shapes, in their own storage type."""
    nodes = {case: random_node(row, case, dtype) for case in cases}
    cotangents = {case: normal(9, SHAPES[case][0], dtype) for case in nodes}
    results = jax.jit(
        lambda nodes: {c: value_and_gradients(n, cotangents[c]) for c, n in nodes.items()}
    )(nodes)
    for case, (kernel, gradients) in results.items():
        node, tolerance = nodes[case], storage_tolerance(dtype)
        assert kernel.dtype == dtype
        assert_near(kernel, oracle_value(row, node), tolerance, f"value, {case}")
        wanted = oracle_gradients(row, node, cotangents[case])
        for leaf, gradient, oracle in zip(jax.tree.leaves(node), gradients, wanted, strict=True):
            assert (gradient.shape, gradient.dtype) == (leaf.shape, leaf.dtype)
            assert_near(gradient, oracle, tolerance, f"gradient, {case}")


def test_float32(row: Row) -> None:
    check(row, SHAPES, jnp.float32)


@pytest.mark.parametrize(
    "dtype",
    [jnp.bfloat16, pytest.param(jnp.float16, marks=pytest.mark.slow)],
    ids=["bfloat16", "float16"],
)
def test_half_precision_storage(row: Row, dtype: type) -> None:
    check(row, ("dense", "attention_out", "conv"), dtype)


def test_float64(row: Row) -> None:
    with jax.enable_x64(True):
        check(row, ("dense", "attention_out", "conv"), jnp.float64)


@pytest.mark.parametrize("row", [r for r in TABLE if r.name in ("wn", "cwn", "ws", "scaled")])
@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_a_scale_of_another_type_keeps_the_kernels_type(row: Row, types: tuple[str, str]) -> None:
    leaves, structure = jax.tree.flatten(random_node(row, "dense"))
    pairs = zip(leaves, types, strict=True)
    mixed = jax.tree.unflatten(structure, [leaf.astype(dtype) for leaf, dtype in pairs])
    kernel = mixed.effective()
    assert kernel.dtype == types[0]
    assert_near(kernel, oracle_value(row, mixed), storage_tolerance(kernel.dtype))


def test_the_oracles_gradients_are_those_of_the_oracles_values(row: Row) -> None:
    draw = np.random.default_rng(3)
    v, c = draw.normal(size=(2, 4, 6))
    s = draw.normal(size=4)
    of_v, of_s = row.pullback(v, s, c)
    for direction in draw.normal(size=(5, 4, 6)):
        step = 1e-5 * direction
        ahead, behind = row.value(v + step, s), row.value(v - step, s)
        assert_near((c * (ahead - behind)).sum() / 2e-5, (of_v * direction).sum(), DIFFERENCES)
    if of_s is not None:
        step = 1e-5 * draw.normal(size=4)
        ahead, behind = row.value(v, s + step), row.value(v, s - step)
        assert_near((c * (ahead - behind)).sum(), 2 * (of_s @ step), DIFFERENCES)


@pytest.mark.parametrize("size", [2, 3, 8, 27, 100])
def test_the_basis_is_orthonormal_and_spans_the_zero_sum_vectors(size: int) -> None:
    basis, other = householder_basis(size), qr_basis(size)
    assert_near(basis.T @ basis, np.eye(size - 1), FLOAT64)
    assert_near(basis.sum(0), np.zeros(size - 1), FLOAT64)
    assert_near(basis @ basis.T, other @ other.T, FLOAT64)


@pytest.mark.parametrize("case", ["dense", "one_unit", "conv_3d"])
def test_lcw_keeps_lengths_and_any_basis_represents_its_kernel(case: str) -> None:
    node = random_node(TABLE[0], case)
    v, w = rows(node.coordinates, node.fan_in_axes), rows(node.effective(), node.fan_in_axes)
    basis = qr_basis(w.shape[1])
    assert_near(np.linalg.norm(w, axis=1), np.linalg.norm(v[:, 1:], axis=1), FLOAT32)
    assert_near(w.sum(1), np.zeros(len(w)), FLOAT32)
    assert_near(w @ basis @ basis.T, w, FLOAT32)


@pytest.mark.parametrize("case", ["dense", "one_unit", "conv_3d"])
def test_spectral_norm_is_one(case: str) -> None:
    row = next(row for row in TABLE if row.name == "sn")
    node = random_node(row, case)
    matrix = rows(node.effective(), node.fan_in_axes)
    assert_near(np.linalg.norm(matrix, 2), 1.0, FLOAT32)


@pytest.mark.parametrize("offset", [10.0, 1000.0])
@pytest.mark.parametrize("name", ["cwn", "ws"])
def test_a_large_mean_costs_no_accuracy_beyond_its_storage(name: str, offset: float) -> None:
    row = next(row for row in TABLE if row.name == name)
    node = row.make(offset + normal(0, (8, 6)), (-2,))
    # Both start from the same stored weights, so the rounding of offset + v is in both.
    tolerance = {"rtol": 0.0, "atol": 2e-7 * offset + 5e-6}
    assert_near(node.effective(), oracle_value(row, node), tolerance)
