"""Weak scaling of the compiled step: what a device sends, at so many rows each, on more devices."""

from collections import Counter
from typing import Any

import jax

from experiments.bench.compiled.program import Program
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.step import step_subject
from experiments.bench.table import Measured, Missing
from experiments.methods.table import find_methods

DEVICES = (1, 2, 4, 8)
ENTRIES = ("jit", "shard_map")
QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0}


def bench_scaling(flags: Any) -> Measured:
    """Collectives of the compiled step and their bytes a device, on 1, 2, 4 and 8 devices."""
    counts = [count for count in DEVICES if count <= len(jax.devices())]
    if len(counts) < 2:
        raise Missing(
            "bench scaling needs several devices; on a CPU set the environment variable "
            "JAX_NUM_CPU_DEVICES=8."
        )
    rows = [
        (
            method.name,
            entry,
            count,
            count * flags.batch_size,
            *_sent(method.name, entry, count, flags),
        )
        for method in find_methods(flags.methods)
        for entry in ENTRIES
        for count in counts
    ]
    columns = ("method", "parallel", "devices", "rows", "collectives", "bytes_per_device")
    return Measured(columns, rows, f"{flags.batch_size} rows a device.")


def _sent(method: str, entry: str, devices: int, flags: Any) -> tuple[str, int]:
    """The collectives of a step and the bytes of their results; nothing is computed."""
    sizes = {name: getattr(flags, name) for name in ("model", "channels", "depth", "width")}
    spec = Spec("step", method, "", entry=entry, rows=flags.batch_size, **sizes)
    subject = step_subject(spec, jax.devices()[:devices])
    # The collectives are settled before machine code is made, which nobody runs.
    compiled = jax.jit(subject.function).lower(*subject.arguments).compile(QUICK)
    program = Program(compiled.as_text() or "")
    kinds = Counter(program.collective_kinds)
    shown = " + ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
    return shown, program.collective_bytes
