"""The costs of one compiled program, and compilations in processes of their own.

``python -m experiments.bench.compiled.measure`` reads a `Spec` as JSON and prints a `Measurement`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import jax

from experiments.bench.compiled.parameters import effective, update
from experiments.bench.compiled.program import COLLECTIVES, Program
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.step import step
from experiments.bench.compiled.targets import devices_of, environment, find_target
from experiments.config import UserError

SUBJECTS = {"step": step, "update": update, "effective": effective}


@dataclass(frozen=True)
class Measurement:
    """Costs of one call of the compiled program on one device.

    Attributes:
        hbm_bytes: bytes to and from its memory.
        flops: operations, counted by the compiler.
        kernels: the number of kernels that it starts, one after the other.
        collectives: the number of exchanges between devices.
        all_reduces: the number of those that are sums over devices.
        collective_bytes: bytes of the collectives' results on one device.
        temp_bytes: bytes of memory beside arguments and results.
        compile_s: seconds to trace and compile on this machine.
        parameters: the number of parameters on one device.
        jax: the version of JAX.
    """

    hbm_bytes: int
    flops: float
    kernels: int
    collectives: int
    all_reduces: int
    collective_bytes: int
    temp_bytes: int
    compile_s: float
    parameters: int
    jax: str


def measure(spec: Spec) -> Measurement:
    """Traces and compiles a spec, and reads the costs; nothing is run."""
    subject = SUBJECTS[spec.what](spec, devices_of(find_target(spec.target)))
    began = time.perf_counter()
    jitted = jax.jit(subject.function, donate_argnums=subject.donate)
    compiled = jitted.lower(*subject.arguments).compile()
    seconds = time.perf_counter() - began
    program = Program(compiled.as_text() or "")
    kinds, memory = program.collective_kinds, compiled.memory_analysis()
    return Measurement(
        hbm_bytes=program.cost.hbm_bytes,
        flops=_flops(compiled, spec),
        kernels=program.cost.kernels,
        collectives=len(kinds),
        all_reduces=kinds.count(COLLECTIVES[0]),
        collective_bytes=program.collective_bytes,
        temp_bytes=memory.temp_size_in_bytes if memory else 0,
        compile_s=round(seconds, 1),
        parameters=subject.parameters,
        jax=jax.__version__,
    )


def _flops(compiled: jax.stages.Compiled, spec: Spec) -> float:
    """Returns the compiler's count, or, if it has none, that of one device's program before it."""
    costs = compiled.cost_analysis()
    if not costs:
        alone = SUBJECTS[spec.what](spec, jax.devices()[:1])
        costs = jax.jit(alone.function).lower(*alone.arguments).cost_analysis()
    return float(costs["flops"]) if costs else float("nan")


def compile_all(specs: Sequence[Spec], jobs: int) -> Iterator[tuple[Spec, Measurement | str]]:
    """Yields the measurement of each compilation, or the reason of its failure; some at once."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(specs, pool.map(compile_apart, specs), strict=True)


def compile_apart(spec: Spec) -> Measurement | str:
    """Compiles in a new process, so that a crash of the compiler ends no other compilation."""
    ended = subprocess.run(
        [sys.executable, "-m", "experiments.bench.compiled.measure"],
        input=json.dumps(asdict(spec)),
        env=environment(find_target(spec.target), os.environ),
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        return Measurement(**json.loads(ended.stdout.splitlines()[-1]))
    if ended.returncode < 0:
        return f"ended by signal {-ended.returncode}, as the system does when memory is short"
    return (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(measure(Spec(**json.load(sys.stdin))))))
    except UserError as error:
        sys.exit(str(error))
