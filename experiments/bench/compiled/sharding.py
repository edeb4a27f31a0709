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

#: The axis of a kernel, from behind.
_AXES = {"fan-in": 2, "units": 1}


class Replicated(Placement):
    """Parameters that are whole on every device."""

    shard: Shard = ""

    def state_shardings(self, state: PyTree) -> PyTree:
        """Where each leaf belongs; one that the devices do not divide is everywhere."""
        assert self.mesh is not None, "a single device has nothing to shard over"
        mesh, axis = self.mesh, MODEL if self.mesh.shape[MODEL] > 1 else DATA
        behind = _AXES.get(self.shard, 0)

        def sharding(leaf: Any) -> NamedSharding:
            cut = 0 < behind <= leaf.ndim and leaf.shape[-behind] % mesh.shape[axis] == 0
            if not cut:
                return NamedSharding(mesh, P())
            names: list[str | None] = [None] * leaf.ndim
            names[-behind] = axis
            return NamedSharding(mesh, P(*names))

        return jax.tree.map(sharding, state)


class AlongFanIn(Replicated):
    """Kernels in pieces along their last axis but one; scales and biases are whole."""

    shard: Shard = "fan-in"


class AlongUnits(Replicated):
    """Kernels, scales and biases in pieces along their last axis."""

    shard: Shard = "units"


def placed(spec: Spec, devices: Sequence[jax.Device]) -> Placement:
    """The devices, and how kernels are spread over them: over ``model``, or else over ``data``."""
    entry: Entry = "shard_map" if spec.entry == "shard_map" else "jit"
    if spec.shard and entry == "shard_map":
        raise UserError("--shard is for --entry jit: shard_map gives every device whole kernels.")
    placement = make_placement(entry, spec.mesh, devices)
    if placement.mesh is None or not (spec.shard or spec.what != "step"):
        return placement
    kinds = {"": Replicated, "fan-in": AlongFanIn, "units": AlongUnits}
    return kinds[spec.shard](placement.mesh, entry)


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
    sizes = (x.shape if x.sharding is None else x.sharding.shard_shape(x.shape) for x in tree)
    return sum(map(math.prod, sizes))
