"""The mesh that a user names."""

import math
from collections.abc import Sequence

import jax
from jax.sharding import AxisType

from experiments._errors import UserError, unknown
from experiments.training._placement import DATA, MODEL, Entry, Placement


def make_placement(
    entry: Entry = "jit", mesh: str = "", devices: Sequence[jax.Device] | None = None
) -> Placement:
    """The placement on a mesh such as ``data=4,model=2``.

    Args:
        entry: how steps run on it.
        mesh: sizes by axis, 1 if left out; an empty string puts all devices along ``data``.
        devices: of all processes; None for all that there are.

    Returns:
        A placement; for jit on one device it has no mesh, as there is nothing to place.

    Raises:
        UserError: for unknown axes, sizes that are not the number of devices, and a model axis
            without jit.
    """
    devices = jax.devices() if devices is None else devices
    sizes = _sizes(mesh) if mesh else {DATA: len(devices)}
    shape = (sizes.get(DATA, 1), sizes.get(MODEL, 1))
    if math.prod(shape) != len(devices):
        raise UserError(
            f"--mesh {mesh} is for {math.prod(shape)} devices and there are {len(devices)}; take "
            f"--mesh data={len(devices)}, or sizes with that product."
        )
    if shape[1] > 1 and entry != "jit":
        raise UserError(
            f"--parallel {entry} spreads rows only and got --mesh {mesh}; take --parallel jit, or "
            f"--mesh data={len(devices)}."
        )
    if entry == "pmap" and len({device.process_index for device in devices}) > 1:
        raise UserError(
            "--parallel pmap is for the devices of one process; take --parallel shard_map."
        )
    if len(devices) == 1 and entry == "jit":
        return Placement()
    # Explicit axes, the default of make_mesh, would want every array's sharding spelled out.
    auto = (AxisType.Auto,) * 2
    return Placement(jax.make_mesh(shape, (DATA, MODEL), auto, devices=devices), entry)


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
