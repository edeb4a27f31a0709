"""Placement of training's arrays: one device, or a mesh of devices of any processes.

`Placement.replicate` places data that every process holds. A pipeline loads its process's
``own_rows`` of each batch and hands them to ``feed``. A checkpoint is read into
``state_shardings``.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, PyTree

from experiments.config import Parallelism
from experiments.errors import UserError, unknown

#: The mesh axes: rows are sharded over ``data``, units over ``model``.
DATA, MODEL = "data", "model"


class Placement(NamedTuple):
    """The devices of a run, with methods that place arrays on them.

    Without a mesh all methods leave arrays as they are, on the one device.

    Attributes:
        mesh: a mesh with the axes ``data`` and ``model``, in this order, or None.
        parallel: the parallelism of a step; ``shard_map`` and ``pmap`` shard rows only.
    """

    mesh: Mesh | None = None
    parallel: Parallelism = "jit"

    @property
    def data_devices(self) -> int:
        """The number of parts that a batch is sharded into."""
        return 1 if self.mesh is None else self.mesh.shape[DATA]

    @property
    def axis_name(self) -> str | None:
        """The mapped axis that a step runs inside of; None under jit, where it sees all rows."""
        return None if self.parallel == "jit" else DATA

    def replicate(self, tree: PyTree) -> PyTree:
        """Places host arrays, whole on every process, on every device."""
        if self.mesh is None:
            return jax.device_put(tree)
        everywhere = NamedSharding(self.mesh, P())
        # One process cannot device_put to the devices of another.
        return jax.tree.map(
            lambda x: jax.make_array_from_process_local_data(everywhere, np.asarray(x)), tree
        )

    def own_rows(self, rows: int) -> Int[np.ndarray, " local"]:
        """Returns the indices of a batch's rows that this process must load."""
        if self.mesh is None:
            return np.arange(rows)
        places = NamedSharding(self.mesh, P(DATA)).addressable_devices_indices_map((rows,))
        return np.unique(np.concatenate([np.arange(rows)[place] for place in places.values()]))

    def feed(self, local_rows: PyTree, rows: int) -> PyTree:
        """Makes a global batch of ``rows`` rows from each process's local_rows rows."""
        if self.mesh is None:
            return jax.device_put(local_rows)
        over_data = NamedSharding(self.mesh, P(DATA))
        return jax.tree.map(
            lambda x: jax.make_array_from_process_local_data(over_data, x, (rows, *x.shape[1:])),
            local_rows,
        )

    def shard_rows(self, tree: PyTree) -> PyTree:
        """Shards rows over the data axis, inside jit; an indivisible number stays replicated."""
        if self.mesh is None:
            return tree
        constrained, over_data = jax.lax.with_sharding_constraint, NamedSharding(self.mesh, P(DATA))
        return jax.tree.map(
            lambda x: x if len(x) % self.data_devices else constrained(x, over_data), tree
        )

    def everywhere(self, tree: PyTree) -> PyTree:
        """Replicates arrays on all devices, inside jit."""
        if self.mesh is None:
            return tree
        return jax.lax.with_sharding_constraint(tree, NamedSharding(self.mesh, P()))

    def state_shardings(self, state: PyTree) -> PyTree:
        """Returns the sharding of each leaf of a state, of arrays or of shapes.

        The last axis of kernels, scales, optimizer states and statistics is the axis of units, and
        is sharded over the model axis. Scalars, and leaves that the axis does not divide (ten
        classes on four devices), are replicated.
        """
        assert self.mesh is not None, "a single device has nothing to shard over"
        mesh, devices = self.mesh, self.mesh.shape[MODEL]

        def sharding(leaf: Array | jax.ShapeDtypeStruct) -> NamedSharding:
            divides = leaf.ndim > 0 and leaf.shape[-1] % devices == 0
            units = P(*[None] * (leaf.ndim - 1), MODEL)
            return NamedSharding(mesh, units if divides and devices > 1 else P())

        return jax.tree.map(sharding, state)

    def keep(self, state: PyTree) -> PyTree:
        """Keeps a state in its shardings, inside jit, so that the next step finds it there."""
        if self.mesh is None:
            return state
        return jax.lax.with_sharding_constraint(state, self.state_shardings(state))


#: The default: one device.
ONE_DEVICE = Placement()


def make_placement(
    parallel: Parallelism = "jit", mesh: str = "", devices: Sequence[jax.Device] | None = None
) -> Placement:
    """Returns the placement on a mesh such as ``data=4,model=2``.

    Args:
        parallel: the parallelism of steps.
        mesh: sizes by axis, 1 if left out; an empty string puts all devices along ``data``.
        devices: the devices of all processes; None for all.

    Returns:
        A placement, without a mesh for jit on one device.

    Raises:
        UserError: for unknown axes, sizes whose product is not the number of devices, or a model
            axis without jit.
    """
    devices = jax.devices() if devices is None else devices
    sizes = _sizes(mesh) if mesh else {DATA: len(devices)}
    shape = (sizes.get(DATA, 1), sizes.get(MODEL, 1))
    if math.prod(shape) != len(devices):
        raise UserError(
            f"--mesh {mesh} is for {math.prod(shape)} devices and there are {len(devices)}; take "
            f"--mesh data={len(devices)}, or sizes with that product."
        )
    if shape[1] > 1 and parallel != "jit":
        raise UserError(
            f"--parallel {parallel} spreads rows only and got --mesh {mesh}; take --parallel jit, "
            f"or --mesh data={len(devices)}."
        )
    if parallel == "pmap" and len({device.process_index for device in devices}) > 1:
        raise UserError(
            "--parallel pmap is for the devices of one process; take --parallel shard_map."
        )
    if len(devices) == 1 and parallel == "jit":
        return Placement()
    # Explicit axes, the default of make_mesh, would require every array's sharding.
    auto = (AxisType.Auto,) * 2
    return Placement(jax.make_mesh(shape, (DATA, MODEL), auto, devices=devices), parallel)


def _sizes(mesh: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for part in mesh.split(","):
        name, _, size = (word.strip() for word in part.partition("="))
        if name not in (DATA, MODEL):
            raise unknown("mesh axis", name, [DATA, MODEL])
        if name in sizes or not size.isdecimal() or int(size) < 1:
            raise UserError(
                f"--mesh is {mesh!r}; wanted each axis once with its number of devices, such as "
                "data=4,model=2."
            )
        sizes[name] = int(size)
    return sizes
