"""Effective kernels of sharded raw parameters have their values and shardings."""

from typing import Any

import jax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxnorm import effective
from tests.reparam.table import FLOAT32, Row, normal
from tests.reparam.trees import assert_near, oracle_value

SPEC = P("data", "model")
AXIS_TYPES = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}


def sharded_node(row: Row, mesh: Any) -> Any:
    """Random node of a 16 x 8 kernel, with leaves per unit sharded like the units."""
    kernel = jax.ShapeDtypeStruct((16, 8), "float32")
    leaves, structure = jax.tree.flatten(jax.eval_shape(lambda k: row.make(k, -2), kernel))
    placed = [
        jax.device_put(
            normal(seed, x.shape), NamedSharding(mesh, SPEC if x.ndim == 2 else P("model"))
        )
        for seed, x in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, placed)


def check(row: Row, kind: str, kernel_of: Any) -> None:
    """Checks the kernel's value and sharding, and the gradient's sharding."""
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AXIS_TYPES[kind],) * 2)
    with jax.set_mesh(mesh):
        node = sharded_node(row, mesh)
        cubes = lambda n: (kernel_of(n) ** 3).sum()  # noqa: E731
        actual, gradients = jax.jit(lambda n: (kernel_of(n), jax.grad(cubes)(n)))(node)
    for gradient, leaf in zip(*map(jax.tree.leaves, (gradients, node)), strict=True):
        assert gradient.sharding.is_equivalent_to(leaf.sharding, leaf.ndim)
    assert actual.sharding.is_equivalent_to(NamedSharding(mesh, SPEC), 2)
    assert_near(actual, oracle_value(row, node), FLOAT32)


@pytest.mark.kept("sn-explicit", "lcw-auto", "wn-explicit", "scaled_lcw-auto")
@pytest.mark.parametrize("kind", AXIS_TYPES)
def test_the_kernel_has_the_sharding_of_the_raw_leaves(row: Row, kind: str) -> None:
    """JAX cannot infer the sharding of the Gram matrix of a kernel with explicit axes."""
    automatic = jax.sharding.auto_axes(effective, out_sharding=SPEC)
    check(row, kind, automatic if (row.name, kind) == ("sn", "explicit") else effective)
