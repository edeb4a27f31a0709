"""Weak scaling of the compiled step: what a device sends, at so many rows each, on more devices."""

import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.bench.step import CLASSES, IMAGE, config_of
from experiments.config import Config, Entry
from experiments.data.dataset import Dataset
from experiments.errors import UserError
from experiments.methods.method import Method
from experiments.methods.table import find_methods
from experiments.reports.csv import write_csv
from experiments.reports.files import prepare_folder
from experiments.reports.show import show_table
from experiments.traffic import Traffic, traffic_of
from experiments.training.devices import make_placement
from experiments.training.state import Batch
from experiments.training.trainer import make_trainer

DEVICES = (1, 2, 4, 8)
ENTRIES: tuple[Entry, ...] = ("jit", "shard_map")
QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0}
COLUMNS = ("method", "parallel", "devices", "rows", "collectives", "bytes_per_device")
HEADER = ("method", "--parallel", "devices", "rows", "collectives", "bytes a device")


def bench_scaling(flags: Any) -> None:
    """Collectives of the compiled step and their bytes a device, on 1, 2, 4 and 8 devices."""
    counts = [count for count in DEVICES if count <= len(jax.devices())]
    if len(counts) == 1:
        raise UserError(
            "bench scaling compiles for several devices and there is one; on a CPU set the "
            f"environment variable JAX_NUM_CPU_DEVICES={DEVICES[-1]}."
        )
    prepare_folder(flags.out)
    config = config_of(flags)
    rows = [
        (method.name, entry, count, count * flags.batch_size, *_shown(sent))
        for method in find_methods(flags.methods)
        for entry in ENTRIES
        for count, sent in zip(
            counts, weak_scaling(method, config, entry, counts, flags.batch_size), strict=True
        )
    ]
    write_csv(flags.out / "scaling.csv", COLUMNS, rows)
    show_table((HEADER, [tuple(map(str, row)) for row in rows]))
    print(f"\n{flags.batch_size} rows a device. Written to {flags.out}: scaling.csv.")


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
