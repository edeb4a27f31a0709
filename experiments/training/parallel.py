"""A step on several devices, and the groups of a batch: of devices, microbatches and methods.

The compiler spreads a step (jit), or each device runs it on its own rows (shard_map, pmap).
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, PyTree

from experiments.config import AnyConfig, Config
from experiments.errors import UserError
from experiments.methods.method import Method
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
    on_devices = entries[placement.parallel](step, placement)

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


class Groups(NamedTuple):
    """Numbers of contiguous groups of a step's rows, each with its own statistics.

    Attributes:
        batch_norm: the number of ghost batches of batch normalization.
        losses: the number of groups for a loss over samples.
    """

    batch_norm: int
    losses: int


def batch_groups(method: Method, config: Config, placement: Placement) -> Groups:
    """Returns the groups of a step's rows: a microbatch under jit, a device's rows otherwise.

    Under jit, batch normalization uses the whole batch, on any number of devices. A loss over
    samples has one group per device, if each device has enough rows, because the rows of one group
    would otherwise travel. ``ghost_groups`` above 1 holds for both and for every parallelism.

    Args:
        method: the method that reads the groups.
        config: the batch size over all devices, the microbatches, and the user's ghost groups.
        placement: the devices.

    Raises:
        UserError: for an indivisible batch, naming divisible sizes, or groups with too few rows.
    """
    devices, groups = placement.data_devices, config.ghost_groups
    if placement.axis_name is not None and groups > 1 and groups % devices:
        raise UserError(
            f"--ghost-groups {groups} cannot be divided over {devices} devices; take a "
            f"multiple of {devices}, or --parallel jit."
        )
    _check_divisible(config.batch_size, config.accumulate * math.lcm(devices, groups))
    rows = config.batch_size // config.accumulate
    apart = groups if groups > 1 else devices
    if needed := method.rows_per_group:
        if placement.axis_name is None and groups == 1:
            apart = _parts_of_devices(devices, rows // needed)
        _check_rows(method, rows // apart)
    if placement.axis_name is None:
        return Groups(groups, apart)
    return Groups(apart // devices, apart // devices)


def rows_together(config: Config, groups: Groups, placement: Placement) -> int:
    """Returns the rows of a step whose statistics batch normalization takes together."""
    devices = 1 if placement.axis_name is None else placement.data_devices
    return config.batch_size // (config.accumulate * devices * groups.batch_norm)


def as_groups_of_jit(config: AnyConfig, placement: Placement) -> AnyConfig:
    """Returns the config with the ghost groups that batch normalization has in the run under jit.

    Under shard_map and pmap each device's rows are a group, so a run on another number of devices
    differs unless its ghost groups are as many.
    """
    if placement.axis_name is None or config.ghost_groups > 1:
        return config
    return config.changed(ghost_groups=placement.data_devices)


def _parts_of_devices(devices: int, most: int) -> int:
    """Returns the number of groups: one per device, or per several with too few rows each."""
    return max((n for n in range(1, devices + 1) if devices % n == 0 and n <= most), default=1)


def _check_divisible(batch_size: int, unit: int) -> None:
    if batch_size % unit:
        below = batch_size // unit * unit
        sizes = f"{below} or {below + unit}" if below else str(unit)
        raise UserError(
            f"the batch size is {batch_size}; devices, --accumulate and --ghost-groups together "
            f"want a multiple of {unit}: take --batch-size {sizes}."
        )


def _check_rows(method: Method, rows: int) -> None:
    if rows < method.rows_per_group:
        raise UserError(
            f"{method.name} ({method.summary}) reads {method.rows_per_group} rows of each part of "
            f"the batch, and a part (a device's, or a ghost group) has {rows}; take a larger "
            "--batch-size or a smaller --sample-size."
        )
