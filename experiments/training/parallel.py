"""A step on several devices: spread by the compiler (jit), or mapped (shard_map, pmap)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, PyTree

from experiments.training.devices import DATA, Placement
from experiments.training.state import Batch, StepMetrics, TrainState, is_key

Step = Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]


def parallelize(step: Step, placement: Placement) -> Step:
    """Makes a step of global arrays: rows sharded over the devices, the state in its shardings.

    Args:
        step: a step made by `make_step` for the placement's ``axis_name``.
        placement: the devices.
    """
    if placement.mesh is None:
        return step
    entries: dict[str, Any] = {"jit": lambda s, _: s, "shard_map": shard_mapped, "pmap": pmapped}
    on_devices = entries[placement.entry](step, placement)

    def parallel_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        state, metrics = on_devices(state, placement.shard_rows(batch))
        return placement.keep(state), metrics

    return parallel_step


def shard_mapped(step: Step, placement: Placement) -> Step:
    """Runs the step on each device's rows with its copy of the state."""
    # With check_vma, jax.grad would already sum over the devices, and the step's own mean would
    # leave a gradient that is too large by their number.
    return jax.shard_map(
        step, mesh=placement.mesh, in_specs=(P(), P(DATA)), out_specs=P(), check_vma=False
    )


def pmapped(step: Step, placement: Placement) -> Step:
    """Runs the step on each device's rows, split along a leading axis for pmap.

    Legacy: JAX keeps pmap for old code; shard_map replaces it.
    """
    assert placement.mesh is not None
    count, devices = placement.data_devices, list(placement.mesh.devices.flat)
    mapped = jax.pmap(step, DATA, in_axes=(None, 0), out_axes=None, devices=devices)

    def pmapped_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        return mapped(state, jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[1:]), batch))

    return pmapped_step


def average(tree: PyTree, axis_name: str | None) -> PyTree:
    """Averages every floating-point leaf over devices, all in one all-reduce.

    Other leaves, such as random counters, are the same on all devices already.
    """
    if axis_name is None:
        return tree

    def mean(leaf: Array) -> Array:
        floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jax.lax.pmean(leaf, axis_name) if floating else leaf

    return jax.tree.map(mean, tree)


def own_keys(tree: PyTree, axis_name: str | None) -> PyTree:
    """Makes random keys differ between devices: two devices must not drop the same units."""
    if axis_name is None:
        return tree
    index = jax.lax.axis_index(axis_name)
    return jax.tree.map(lambda x: jax.random.fold_in(x, index) if is_key(x) else x, tree)


def shared_keys(tree: PyTree, kept: PyTree, axis_name: str | None) -> PyTree:
    """Restores the keys of ``kept``, which all devices share; counters tell draws apart."""
    if axis_name is None:
        return tree
    return jax.tree.map(lambda x, old: old if is_key(old) else x, tree, kept)
