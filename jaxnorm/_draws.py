"""Draws of noise: a key for each row, and each device's slice of the draws for a whole array."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Key, UInt

#: A key, typed or raw, or an array with one key for each row.
Keys = Key[Array, "..."] | UInt[Array, "..."]

#: The mesh axes over which each axis of an array is split; unsplit axes are left out.
Split = dict[int, tuple[str, ...]]


def typed_keys(key: Keys, rows: int | None) -> Key[Array, "..."]:
    """Returns one typed key per row, or the one key of a step if ``rows`` is None."""
    if not hasattr(key, "dtype"):
        raise TypeError(f"the key is {key!r}; wanted a key of JAX: jax.random.key(seed).")
    is_typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    keys = key if is_typed else jax.random.wrap_key_data(key)
    if rows is not None and not keys.ndim:
        keys = jax.random.split(keys, rows)
    if keys.shape != (() if rows is None else (rows,)):
        wanted = (
            f"one key, or one for each of {rows} rows" if rows else "a single key for per='step'"
        )
        raise ValueError(f"got keys of shape {keys.shape}; wanted {wanted}.")
    return _threefry(keys)


def _threefry(keys: Key[Array, "*rows"]) -> Key[Array, "*rows"]:
    """Converts keys to the one generator whose draws do not depend on sharding or vmap."""
    if str(jax.random.key_impl(keys)) == "threefry2x32":
        return keys
    words = jax.random.key_data(keys)
    result: Key[Array, "*rows"] = jax.random.wrap_key_data(words[..., :2], impl="threefry2x32")
    fold_in = jax.vmap(jax.random.fold_in) if keys.ndim else jax.random.fold_in
    for number in range(2, words.shape[-1]):
        result = fold_in(result, words[..., number])
    return result


def normal(
    keys: Key[Array, "*rows"],
    numbers: Sequence[Any],
    shape: tuple[int, ...],
    dtype: Any,
    sample_axis: int | None,
    split: Split,
) -> Float[Array, "..."]:
    """Draws standard normal numbers.

    Args:
        keys: one per index of the sample axis; a single key without such an axis.
        numbers: numbers to fold into each key: the kernel's path as one number, its earlier uses,
            and its places in stacks of layers.
        shape: the shape of the result; 1 along axes that share a draw.
        dtype: the type of the result.
        sample_axis: the axis of the samples; None if all samples share their draws.
        split: the axes of which this device has a slice; it draws the whole ones.
    """
    whole = whole_shape(shape, split)
    of_key = tuple(size for axis, size in enumerate(whole) if axis != sample_axis)

    def draw(key: Key[Array, ""]) -> Float[Array, "..."]:
        for number in numbers:
            key = jax.random.fold_in(key, number)
        return jax.random.normal(key, of_key, dtype)

    draws = draw(keys) if sample_axis is None else jax.vmap(draw, out_axes=sample_axis)(keys)
    return device_slice(draws, shape, split)


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
