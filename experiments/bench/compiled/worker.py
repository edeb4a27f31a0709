"""One compilation in a process of its own: a `Spec` on stdin, what was found on stdout, as JSON."""

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import jax

from experiments.bench.compiled.effective import effective_subject
from experiments.bench.compiled.program import COLLECTIVES, Program
from experiments.bench.compiled.spec import Spec, Subject
from experiments.bench.compiled.step import step_subject
from experiments.bench.compiled.targets import devices_of, find_target
from experiments.bench.compiled.update import update_subject
from experiments.errors import UserError

SUBJECTS = {"step": step_subject, "update": update_subject, "effective": effective_subject}


@dataclass(frozen=True)
class Found:
    """What one device does in one call of the compiled program.

    Attributes:
        hbm_bytes: to and from its memory.
        flops: operations, as the compiler counts them.
        kernels: the programs that it starts, one after the other.
        collectives: how often the devices wait for each other's numbers.
        all_reduces: those of them that are sums over devices.
        collective_bytes: of those numbers, on one device.
        temp_bytes: of memory, beside what is given to the program and what it gives.
        compile_s: seconds to trace and compile, which depend on this machine.
        parameters: the numbers that are trained, on one device.
        jax: the version.
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


def measure(spec: Spec) -> Found:
    """Traces, compiles and reads; nothing is run."""
    subject = SUBJECTS[spec.what](spec, devices_of(find_target(spec.target)))
    began = time.perf_counter()
    jitted = jax.jit(subject.function, donate_argnums=subject.donate if spec.donate else ())
    compiled = jitted.lower(*subject.arguments).compile()
    seconds = time.perf_counter() - began
    program = Program(compiled.as_text() or "")
    kinds = program.collective_kinds
    return Found(
        *(program.cost.hbm_bytes, _flops(compiled, subject), program.cost.kernels),
        *(len(kinds), kinds.count(COLLECTIVES[0]), program.collective_bytes),
        temp_bytes=_temporary(compiled),
        compile_s=round(seconds, 1),
        parameters=subject.parameters,
        jax=jax.__version__,
    )


def _flops(compiled: jax.stages.Compiled, subject: Subject) -> float:
    """The compiler's count; where it has none, that of the same program before it is optimized."""
    if costs := compiled.cost_analysis():
        return float(costs["flops"])
    function, arguments = subject.local
    costs = jax.jit(function).lower(*arguments).cost_analysis()
    return float(costs["flops"]) if costs else float("nan")


def _temporary(compiled: jax.stages.Compiled) -> int:
    memory = compiled.memory_analysis()
    return 0 if memory is None else memory.temp_size_in_bytes


def main() -> int:
    """Reads, measures and answers; the status is 2 after a user's error, which is the last line."""
    try:
        answer: Any = asdict(measure(Spec(**json.load(sys.stdin))))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
