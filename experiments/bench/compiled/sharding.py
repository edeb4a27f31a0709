"""Kernels in pieces, one a device: along the fan-in, or along the units."""

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from experiments.bench.compiled.spec import Shard, Spec
from experiments.config import Entry
from experiments.errors import UserError
from experiments.training.devices import DATA, MODEL, Placement, make_placement

#: The axis of a kernel that is cut, from behind; none where kernels are whole.
_AXES: dict[Shard, int] = {"": 0, "fan-in": 2, "units": 1}


def cut_along(behind: int) -> type[Placement]:
    """Parameters in pieces along an axis, counted from behind; along none for 0."""

    class Cut(Placement):
        """Pieces over the axis ``model``, or over ``data`` where there is no other."""

        def state_shardings(self, state: PyTree) -> PyTree:
            """Where each leaf belongs; one that the devices do not divide is everywhere."""
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
    """The devices, and how kernels are spread over them."""
    entry: Entry = "shard_map" if spec.entry == "shard_map" else "jit"
    if spec.shard and entry == "shard_map":
        raise UserError("--shard is for --entry jit: shard_map gives every device whole kernels.")
    placement = make_placement(entry, spec.mesh, devices)
    if placement.mesh is None or not (spec.shard or spec.what != "step"):
        return placement
    return cut_along(_AXES[spec.shard])(placement.mesh, entry)


def on(placement: Placement, tree: PyTree) -> PyTree:
    """The shapes of parameters and the like, each where it belongs."""
    if placement.mesh is None:
        return tree
    return jax.tree.map(_on, tree, placement.state_shardings(tree))


def rows_on(placement: Placement, tree: PyTree) -> PyTree:
    """The shapes of a batch, its rows over the devices."""
    if placement.mesh is None:
        return tree
    over_data = NamedSharding(placement.mesh, P(DATA))
    return jax.tree.map(lambda x: _on(x, over_data), tree)


def _on(shape: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)


def own_size(tree: PyTree) -> int:
    """How many numbers of a tree of placed shapes one device holds."""
    leaves = jax.tree.leaves(tree)
    sizes = (x.shape if x.sharding is None else x.sharding.shard_shape(x.shape) for x in leaves)
    return sum(map(math.prod, sizes))
