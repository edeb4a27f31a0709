"""Weak scaling of the compiled step: what a device sends, at so many rows each, on more devices."""

import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.bench.step import CLASSES, IMAGE, config_of
from experiments.bench.table import Measured
from experiments.config import Config, Entry
from experiments.data.dataset import Dataset
from experiments.methods.method import Method
from experiments.methods.table import find_methods
from experiments.traffic import Traffic, traffic_of
from experiments.training.devices import make_placement
from experiments.training.state import Batch
from experiments.training.trainer import make_trainer

DEVICES = (1, 2, 4, 8)
ENTRIES: tuple[Entry, ...] = ("jit", "shard_map")
QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0}
COLUMNS = ("method", "parallel", "devices", "rows", "collectives", "bytes_per_device")


def bench_scaling(flags: Any) -> Measured:
    """Collectives of the compiled step and their bytes a device, on 1, 2, 4 and 8 devices."""
    counts = [count for count in DEVICES if count <= len(jax.devices())]
    config = config_of(flags)
    rows = [
        (method.name, entry, count, count * flags.batch_size, *_shown(sent))
        for method in find_methods(flags.methods)
        for entry in ENTRIES
        for count, sent in zip(
            counts, weak_scaling(method, config, entry, counts, flags.batch_size), strict=True
        )
    ]
    return Measured(COLUMNS, rows, f"{flags.batch_size} rows a device.")


def weak_scaling(
    method: Method, config: Config, entry: Entry, counts: Sequence[int], rows: int
) -> list[Traffic]:
    """What a step sends on each number of devices, with ``rows`` rows on each of them."""
    return [step_traffic(method, config, entry, count, rows * count) for count in counts]


def step_traffic(method: Method, config: Config, entry: Entry, devices: int, rows: int) -> Traffic:
    """What the compiled step of ``rows`` rows sends; nothing is computed."""
    where = make_placement(entry, devices=jax.devices()[:devices])
    # Zeros that take no memory: only their shapes matter.
    X: Any = np.broadcast_to(np.float32(0), (rows, *IMAGE))
    y: Any = np.broadcast_to(np.int32(0), rows)
    config = config.changed(epochs=1, batch_size=rows)
    trainer = make_trainer(method, config, Dataset(X, y, X, y, "zeros", CLASSES), where)
    state = jax.eval_shape(inspect.unwrap(trainer.init), np.uint32(0), X)
    if where.mesh is not None:
        state = jax.tree.map(_on, state, where.state_shardings(state))
    # The collectives are settled before machine code is made, which nobody runs.
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), rows))
    compiled = jax.jit(trainer.step).lower(state, Batch(X, y, keys)).compile(QUICK)
    return traffic_of(compiled.as_text() or "")


def _on(shape: jax.ShapeDtypeStruct, sharding: jax.sharding.Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)


def _shown(sent: Traffic) -> tuple[str, int]:
    kinds = Counter(sent.operations)
    return " + ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none", sent.bytes
