"""A step by pmap: legacy. JAX keeps pmap for old code; shard_map does the same and more."""

import jax

from experiments.training._loss import Batch
from experiments.training._placement import DATA, Placement
from experiments.training._state import Metrics, TrainState
from experiments.training._step import Step


def pmapped(step: Step, placement: Placement) -> Step:
    """The step on each device's own rows, which pmap wants along an axis of their own."""
    count = placement.data_devices
    mapped = jax.pmap(
        step,
        axis_name=DATA,
        in_axes=(None, 0),
        out_axes=None,
        devices=list(placement.mesh.devices.flat),
    )

    def pmapped_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        return mapped(state, jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[1:]), batch))

    return pmapped_step
