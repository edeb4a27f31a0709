"""The costs of one compiled program, and compilations in processes of their own.

``python -m experiments.bench.compiled.measure`` reads a `Spec` as JSON and prints its costs.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax

from experiments.bench.compiled.parameters import effective, update
from experiments.bench.compiled.program import Program
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.step import step
from experiments.bench.compiled.targets import devices_of, environment, find_target
from experiments.errors import UserError

SUBJECTS = {"step": step, "update": update, "effective": effective}

#: Columns of compiled.csv, of one call on one device: bytes to and from its memory, operations,
#: kernels that it starts one after the other, collectives, those that are sums, bytes of the
#: collectives' results, bytes of memory beside arguments and results, seconds to trace and compile
#: here, parameters, and the version of JAX.
Costs = dict[str, Any]


def measure(spec: Spec) -> Costs:
    """Traces and compiles a spec, and reads the costs; nothing is run."""
    subject = SUBJECTS[spec.what](spec, devices_of(find_target(spec.target)))
    began = time.perf_counter()
    jitted = jax.jit(subject.function, donate_argnums=subject.donate)
    compiled = jitted.lower(*subject.arguments).compile()
    seconds = time.perf_counter() - began
    program, memory = Program(compiled.as_text() or ""), compiled.memory_analysis()
    return {
        "hbm_bytes": program.cost.hbm_bytes,
        "flops": _flops(compiled, spec),
        "kernels": program.cost.kernels,
        "collectives": len(program.collectives),
        "all_reduces": program.collective_kinds.count("all-reduce"),
        "collective_bytes": program.collective_bytes,
        "temp_bytes": memory.temp_size_in_bytes if memory else 0,
        "compile_s": round(seconds, 1),
        "parameters": subject.parameters,
        "jax": jax.__version__,
    }


def _flops(compiled: jax.stages.Compiled, spec: Spec) -> float:
    """Returns the compiler's count, or, if it has none, that of one device's program before it."""
    costs = compiled.cost_analysis()
    if not costs:
        alone = SUBJECTS[spec.what](spec, jax.devices()[:1])
        costs = jax.jit(alone.function).lower(*alone.arguments).cost_analysis()
    return float(costs["flops"]) if costs else float("nan")


def compile_all(specs: Sequence[Spec], jobs: int) -> Iterator[tuple[Spec, Costs | str]]:
    """Yields the costs of each compilation, or the reason of its failure; ``jobs`` at once."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(specs, pool.map(compile_apart, specs), strict=True)


def compile_apart(spec: Spec) -> Costs | str:
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
        costs: Costs = json.loads(ended.stdout.splitlines()[-1])
        return costs
    if ended.returncode < 0:
        return f"ended by signal {-ended.returncode}, as the system does when memory is short"
    return (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]


if __name__ == "__main__":
    try:
        print(json.dumps(measure(Spec(**json.load(sys.stdin)))))
    except UserError as error:
        sys.exit(str(error))
