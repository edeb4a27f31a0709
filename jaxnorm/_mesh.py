"""Arrays on one device of a mesh: the mesh axes along which they vary, slices of whole arrays."""

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array

#: The mesh axes over which each axis of an array is split; unsplit axes are left out.
Split = dict[int, tuple[str, ...]]


def varying_axes(value: Any) -> frozenset[str]:
    """Mesh axes along which an array, or an abstract value, varies inside shard_map.

    Empty outside of shard_map, under pmap, and for ``check_vma=False``.
    """
    aval = value if isinstance(value, jax.core.AbstractValue) else jax.typeof(value)
    # JAX 0.10 has moved ``vma`` into the type of the manual axes.
    axes = getattr(getattr(aval, "manual_axis_type", None), "varying", None)
    result: frozenset[str] = getattr(aval, "vma", frozenset()) if axes is None else axes
    return result


def vary_alike(*arrays: Array) -> tuple[Array, ...]:
    """Casts arrays so that all vary along the mesh axes of each, as derivatives have to."""
    axes = frozenset().union(*map(varying_axes, arrays))
    missing = [tuple(sorted(axes - varying_axes(x))) for x in arrays]
    pairs = zip(arrays, missing, strict=True)
    return tuple(jax.lax.pcast(x, names, to="varying") if names else x for x, names in pairs)


def split_of(
    name: str, x: Array, spec: PartitionSpec | None, mesh_axes: frozenset[str], axes: Sequence[int]
) -> Split:
    """Returns the axes of an array that are split over devices that have the same key.

    Args:
        name: the array, for the message.
        x: this device's slice of the array.
        spec: the array's PartitionSpec; None if it is unknown.
        mesh_axes: the mesh axes along which the array varies and the key does not.
        axes: the axes of the array that may be split over them.

    Raises:
        ValueError: without a spec, unless a single axis may be split.
    """
    if spec is not None:
        names = ((entry,) if isinstance(entry, str) else entry for entry in spec)
        return {axis: tuple(entry) for axis, entry in enumerate(names) if entry}
    if mesh_axes and (len(mesh_axes) > 1 or len(axes) != 1):
        raise ValueError(
            f"{name} of shape {x.shape} varies along the mesh axes {sorted(mesh_axes)} and the key "
            "does not, so each device needs its slice of the draws, and it is unknown which axis "
            "is split over them (units, stacked layers, experts, or the fan-in). Pass the in_specs "
            "of the parameters: specs={...: PartitionSpec(...)}, with PartitionSpec() for an array "
            "that is the same on all devices; or give each device a key of its own."
        )
    return {axis: tuple(mesh_axes) for axis in axes if mesh_axes}


def whole_shape(shape: tuple[int, ...], split: Split) -> tuple[int, ...]:
    """Returns the shape of the whole array from the shape of a device's slice."""
    devices = {axis: math.prod(map(jax.lax.axis_size, names)) for axis, names in split.items()}
    return tuple(size * devices.get(axis, 1) for axis, size in enumerate(shape))


def device_slice(whole: Array, shape: tuple[int, ...], split: Split) -> Array:
    """Returns this device's slice, of a given shape, of a whole array."""
    for axis, names in split.items():
        start = jax.lax.axis_index(names) * shape[axis]
        whole = jax.lax.dynamic_slice_in_dim(whole, start, shape[axis], axis)
    return whole
