"""Values and gradients of every node against dense bases, dense Jacobians and an SVD in float64."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import pytest

from tests.reparam.table import SHAPES, TABLE, Row, normal, random_node, storage_tolerance
from tests.reparam.trees import (
    assert_near,
    oracle_gradients,
    oracle_value,
    value_and_gradients,
)


def check(row: Row, cases: Iterable[str], dtype: type) -> None:
    """Checks value and gradients of random nodes of these shapes, stored in ``dtype``."""
    nodes = {case: random_node(row, case, dtype) for case in cases}
    cotangents = {case: normal(9, SHAPES[case][0], dtype) for case in nodes}
    results = jax.jit(
        lambda nodes: {c: value_and_gradients(n, cotangents[c]) for c, n in nodes.items()}
    )(nodes)
    for case, (kernel, gradients) in results.items():
        node, tolerance = nodes[case], storage_tolerance(dtype)
        assert kernel.dtype == dtype
        assert_near(kernel, oracle_value(row, node), tolerance, f"value, {case}")
        expected = oracle_gradients(row, node, cotangents[case])
        for leaf, gradient, oracle in zip(jax.tree.leaves(node), gradients, expected, strict=True):
            assert (gradient.shape, gradient.dtype) == (leaf.shape, leaf.dtype)
            assert_near(gradient, oracle, tolerance, f"gradient, {case}")


@pytest.mark.kept("cwn", "lcw")
def test_float32(row: Row) -> None:
    check(row, SHAPES, jnp.float32)


@pytest.mark.kept("lcw", "sn")
@pytest.mark.parametrize(
    "dtype",
    [jnp.bfloat16, pytest.param(jnp.float16, marks=pytest.mark.slow)],
    ids=["bfloat16", "float16"],
)
def test_half_precision_storage(row: Row, dtype: type) -> None:
    check(row, ("dense", "attention_out", "conv"), dtype)


@pytest.mark.kept("scaled_lcw", "sn", "ws")
def test_float64(row: Row) -> None:
    with jax.enable_x64(True):
        check(row, ("dense", "attention_out", "conv"), jnp.float64)


@pytest.mark.parametrize("row", [r for r in TABLE if r.name in ("wn", "cwn", "ws", "scaled")])
@pytest.mark.parametrize("types", [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_the_kernel_has_the_type_of_the_direction(row: Row, types: tuple[str, str]) -> None:
    leaves, structure = jax.tree.flatten(random_node(row, "dense"))
    pairs = zip(leaves, types, strict=True)
    mixed = jax.tree.unflatten(structure, [leaf.astype(dtype) for leaf, dtype in pairs])
    kernel = mixed.effective()
    assert kernel.dtype == types[0]
    assert_near(kernel, oracle_value(row, mixed), storage_tolerance(kernel.dtype))


@pytest.mark.parametrize("offset", [10.0, 1000.0])
@pytest.mark.parametrize("name", ["cwn", "ws"])
def test_a_large_mean_only_adds_its_rounding(name: str, offset: float) -> None:
    row = next(row for row in TABLE if row.name == name)
    node = row.make(offset + normal(0, (8, 6)), (-2,))
    # Node and oracle share the stored weights, which contain the rounding of offset + v.
    tolerance = {"rtol": 0.0, "atol": 2e-7 * offset + 5e-6}
    assert_near(node.effective(), oracle_value(row, node), tolerance)
