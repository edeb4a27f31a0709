"""How a batch is divided: over devices, into microbatches, and into the groups that methods see."""

import math
from typing import NamedTuple

from experiments.config import AnyConfig, Config
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.training.devices import Placement


class Groups(NamedTuple):
    """The contiguous parts of what a step sees, each with statistics of its own.

    Attributes:
        batch_norm: the ghost batches of batch normalization.
        losses: the parts that a loss over samples sees apart.
    """

    batch_norm: int
    losses: int


def batch_groups(method: Method, config: Config, placement: Placement) -> Groups:
    """The groups inside a step, which sees a microbatch: all of it under jit, else the device's.

    Under jit, batch normalization is that of the whole batch, on any number of devices. A loss over
    samples reads rows of every device, if each has enough of them, since rows of one would have to
    travel. A number of groups above 1 holds for both, and however the step runs.

    Args:
        method: what reads the rows.
        config: the rows of a step, of all devices, its microbatches, and the parts of a whole
            microbatch that the user wants apart.
        placement: the devices.

    Raises:
        UserError: for a batch that cannot be divided so, with sizes that can.
    """
    devices, groups = placement.data_devices, config.ghost_groups
    if placement.axis_name is not None and groups > 1 and groups % devices:
        raise UserError(
            f"--ghost-groups {groups} are not the same number on each of {devices} devices; take a "
            f"multiple of {devices}, or --parallel jit."
        )
    _check_divisible(config.batch_size, config.accumulate * math.lcm(devices, groups))
    rows = config.batch_size // config.accumulate
    apart = groups if groups > 1 else devices
    if needed := method.rows_of_a_group:
        if placement.axis_name is None and groups == 1:
            apart = _parts_of_devices(devices, rows // needed)
        _check_rows(method, rows // apart)
    if placement.axis_name is None:
        return Groups(groups, apart)
    return Groups(apart // devices, apart // devices)


def as_groups_of_jit(config: AnyConfig, placement: Placement) -> AnyConfig:
    """With the ghost groups under jit whose batch normalization is that of the run.

    Under shard_map and pmap each device's rows are a group: on other devices a run is another one,
    unless its groups are as many.
    """
    if placement.axis_name is None or config.ghost_groups > 1:
        return config
    return config.changed(ghost_groups=placement.data_devices)


def _parts_of_devices(devices: int, most: int) -> int:
    """A part on each device; or of several together, if one has too few rows for a sample."""
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
    if rows < method.rows_of_a_group:
        raise UserError(
            f"{method.name} ({method.summary}) reads {method.rows_of_a_group} rows of each part of "
            f"the batch, and a part (a device's, or a ghost group) has {rows}; take a larger "
            "--batch-size or a smaller --sample-size."
        )
