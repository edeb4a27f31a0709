"""Divisions of a batch: over devices, into microbatches, and into the groups of a method."""

import math
from typing import NamedTuple

from experiments.config import AnyConfig, Config
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.training.devices import Placement


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
