"""Shapes of arrays with their shardings over devices that need not be there."""

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from experiments.bench.compiled.spec import Shard
from experiments.training.devices import DATA, make_placement

#: The sharded axis of a kernel, counted from the last one, which is 1; 0 for whole kernels.
_AXES: dict[Shard, int] = {"": 0, "fan-in": 2, "units": 1}


def shardings(tree: PyTree, devices: Sequence[jax.Device], shard: Shard = "") -> PyTree:
    """Returns the sharding of each leaf; leaves that the devices do not divide are replicated."""
    mesh, behind = make_placement("jit", "", devices).mesh, _AXES[shard]
    assert mesh is not None, "a single device has nothing to shard over"

    def sharding(leaf: Any) -> NamedSharding:
        if not 0 < behind <= leaf.ndim or leaf.shape[-behind] % len(devices):
            return NamedSharding(mesh, P())
        return NamedSharding(mesh, P(*[None] * (leaf.ndim - behind), DATA))

    return jax.tree.map(sharding, tree)


def placed(tree: PyTree, devices: Sequence[jax.Device], shard: Shard = "") -> PyTree:
    """Returns the shapes of parameters with their shardings; on one device they have none."""
    return tree if len(devices) == 1 else _with(tree, shardings(tree, devices, shard))


def rows_over(tree: PyTree, devices: Sequence[jax.Device]) -> PyTree:
    """Returns the shapes of a batch with its rows sharded over the devices."""
    mesh = make_placement("jit", "", devices).mesh
    if mesh is None:
        return tree
    return _with(tree, jax.tree.map(lambda leaf: NamedSharding(mesh, P(DATA)), tree))


def own_size(tree: PyTree) -> int:
    """Counts the numbers of a tree of placed shapes that one device holds."""
    leaves = jax.tree.leaves(tree)
    sizes = (x.shape if x.sharding is None else x.sharding.shard_shape(x.shape) for x in leaves)
    return sum(map(math.prod, sizes))


def _with(tree: PyTree, shardings: PyTree) -> PyTree:
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        tree,
        shardings,
    )
