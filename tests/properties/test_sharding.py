"""Updates are equal on any mesh, and have the shardings of the parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxnorm import sphere_projection
from tests.devices import AXIS_TYPES, collectives, mesh
from tests.table import Row, example_gradients, example_params
from tests.trees import assert_close, by_path, quick_jit, run, update_twice

DEVICES = 8


def specification(leaf: Any) -> P:
    """Four shards of the last axis, the units, and in kernels two of the axis before."""
    return P("units") if leaf.ndim == 1 else P(*[None] * (leaf.ndim - 2), "inputs", "units")


def grid(axis_type: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("inputs", "units"), axis_types=(axis_type,) * 2)


def sharded(tree: Any, over: jax.sharding.Mesh) -> Any:
    shardings = jax.tree.map(lambda leaf: NamedSharding(over, specification(leaf)), tree)
    return jax.device_put(tree, shardings)


def assert_sharded_as(actual: Any, expected: Any) -> None:
    for path, leaf in by_path(expected).items():
        assert by_path(actual)[path].sharding.is_equivalent_to(leaf.sharding, leaf.ndim), path


def on_one_device(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


@pytest.mark.kept("explicit")
@AXIS_TYPES
def test_sharded_parameters_under_jit(row: Row, axis_type: AxisType) -> None:
    over = grid(axis_type)
    with jax.set_mesh(over):
        params, gradients = sharded(example_params(), over), sharded(example_gradients(), over)
        first, second, _ = run(row.tx, params, gradients)
    for updates in (first, second):
        assert_sharded_as(updates, params)
    expected = run(row.tx, example_params(), example_gradients())[:2]
    assert_close(on_one_device((first, second)), expected)


def gradients_per_device() -> Any:
    """Eight gradients, whose mean is the gradient of the example."""
    weights = jnp.linspace(0.0, 2.0, DEVICES)
    return jax.tree.map(lambda g: weights.reshape(-1, *[1] * g.ndim) * g[None], example_gradients())


@pytest.mark.kept("sphere", "zero_sums", "centered")
def test_replicated_parameters_under_shard_map(row: Row) -> None:
    def steps(params: Any, gradients: Any) -> Any:
        mean = jax.lax.pmean(jax.tree.map(lambda g: g[0], gradients), "data")
        return update_twice(row.tx.init, row.tx.update, params, mean)[:2]

    over = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    mapped = jax.shard_map(steps, mesh=over, in_specs=(P(), P("data")), out_specs=P())
    actual = quick_jit(mapped)(example_params(), gradients_per_device())
    expected = run(row.tx, example_params(), example_gradients())[:2]
    assert_close(on_one_device(actual), expected)


@pytest.mark.kept("centered", "noise", "tangent")
def test_replicated_parameters_under_pmap(row: Row) -> None:
    def steps(params: Any, gradients: Any) -> Any:
        mean = jax.lax.pmean(gradients, "data")
        return update_twice(row.tx.init, row.tx.update, params, mean)[:2]

    mapped = jax.pmap(steps, axis_name="data", in_axes=(None, 0), out_axes=None)
    actual = mapped(example_params(), gradients_per_device())
    expected = run(row.tx, example_params(), example_gradients())[:2]
    assert_close(on_one_device(actual), expected)


SHAPES = {"dense": ((784, 256), P("data")), "conv": ((3, 3, 64, 128), P(None, None, "data"))}


@pytest.mark.parametrize("tangent", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_kernel_is_gathered(shape: str, tangent: bool) -> None:
    sizes, spec = SHAPES[shape]
    tx = sphere_projection(tangent=tangent)

    def step(updates: Any, params: Any) -> Any:
        return optax.apply_updates(params, tx.update(updates, optax.EmptyState(), params)[0])

    with jax.set_mesh(mesh(8)):
        kernel = jax.device_put(jnp.ones(sizes), spec)
        sent = collectives(step, {"kernel": kernel}, {"kernel": kernel})
    assert set(sent) == {"all-reduce"}
    if not tangent:
        assert len(sent) == 1
