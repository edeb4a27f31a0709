"""A step on each device's own rows, by shard_map; and which way a step runs on a placement."""

import jax
from jax.sharding import PartitionSpec as P

from experiments.training._loss import Batch
from experiments.training._placement import DATA, Placement
from experiments.training._pmap import pmapped
from experiments.training._state import Metrics, TrainState
from experiments.training._step import Step


def placed(step: Step, placement: Placement) -> Step:
    """The same step on global arrays: rows over the devices, the state where it belongs.

    Args:
        step: as `make_step` gives it for the placement's ``axis_name``.
        placement: the devices.
    """
    if placement.mesh is None:
        return step
    run = {"jit": lambda step, _: step, "shard_map": shard_mapped, "pmap": pmapped}[placement.entry]
    on_devices = run(step, placement)

    def placed_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        state, metrics = on_devices(state, placement.spread_rows(batch))
        return placement.keep(state), metrics

    return placed_step


def shard_mapped(step: Step, placement: Placement) -> Step:
    """The step on each device's own rows and its copy of the state."""
    # Unchecked: with replication checked, jax.grad inside would already sum over the devices, and
    # the step's own mean would leave a gradient that is too large by their number.
    return jax.shard_map(
        step, mesh=placement.mesh, in_specs=(P(), P(DATA)), out_specs=P(), check_vma=False
    )
