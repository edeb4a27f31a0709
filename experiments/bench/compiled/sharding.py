"""Kernels sharded over devices along the fan-in or the units."""

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from experiments.bench.compiled.spec import Shard, Spec
from experiments.config import Parallelism
from experiments.errors import UserError
from experiments.training.devices import DATA, MODEL, Placement, make_placement

#: The sharded axis of a kernel, counted from the last one, which is 1; 0 for whole kernels.
_AXES: dict[Shard, int] = {"": 0, "fan-in": 2, "units": 1}


def cut_along(behind: int) -> type[Placement]:
    """Returns a placement that shards parameters along an axis, counted from the last one."""

    class Cut(Placement):
        """A placement that shards parameters over ``model``, or ``data`` without a model axis."""

        def state_shardings(self, state: PyTree) -> PyTree:
            """Returns the sharding of each leaf; indivisible ones are replicated."""
            assert self.mesh is not None, "a single device has nothing to shard over"
            mesh, axis = self.mesh, MODEL if self.mesh.shape[MODEL] > 1 else DATA

            def sharding(leaf: Any) -> NamedSharding:
                if not 0 < behind <= leaf.ndim or leaf.shape[-behind] % mesh.shape[axis]:
                    return NamedSharding(mesh, P())
                before = leaf.ndim - behind
                return NamedSharding(mesh, P(*before * [None], axis, *(behind - 1) * [None]))

            return jax.tree.map(sharding, state)

    return Cut


def placed(spec: Spec, devices: Sequence[jax.Device]) -> Placement:
    """Returns the devices, and how kernels are sharded over them."""
    entry: Parallelism = "shard_map" if spec.entry == "shard_map" else "jit"
    if spec.shard and entry == "shard_map":
        raise UserError("--shard needs --entry jit: shard_map gives every device whole kernels.")
    placement = make_placement(entry, spec.mesh, devices)
    if placement.mesh is None or not (spec.shard or spec.what != "step"):
        return placement
    return cut_along(_AXES[spec.shard])(placement.mesh, entry)


def on(placement: Placement, tree: PyTree) -> PyTree:
    """Returns the shapes of parameters with their shardings."""
    if placement.mesh is None:
        return tree
    return jax.tree.map(_on, tree, placement.state_shardings(tree))


def rows_on(placement: Placement, tree: PyTree) -> PyTree:
    """Returns the shapes of a batch with its rows sharded over the devices."""
    if placement.mesh is None:
        return tree
    over_data = NamedSharding(placement.mesh, P(DATA))
    return jax.tree.map(lambda x: _on(x, over_data), tree)


def _on(shape: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)


def own_size(tree: PyTree) -> int:
    """Counts the numbers of a tree of placed shapes that one device holds."""
    leaves = jax.tree.leaves(tree)
    sizes = (x.shape if x.sharding is None else x.sharding.shard_shape(x.shape) for x in leaves)
    return sum(map(math.prod, sizes))
