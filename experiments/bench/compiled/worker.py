"""One compilation in its own process: a `Spec` on stdin, its `Measurement` on stdout, as JSON."""

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
    jitted = jax.jit(subject.function, donate_argnums=subject.donate if spec.donate else ())
    compiled = jitted.lower(*subject.arguments).compile()
    seconds = time.perf_counter() - began
    program = Program(compiled.as_text() or "")
    kinds, memory = program.collective_kinds, compiled.memory_analysis()
    return Measurement(
        *(program.cost.hbm_bytes, _flops(compiled, subject), program.cost.kernels),
        *(len(kinds), kinds.count(COLLECTIVES[0]), program.collective_bytes),
        temp_bytes=memory.temp_size_in_bytes if memory else 0,
        compile_s=round(seconds, 1),
        parameters=subject.parameters,
        jax=jax.__version__,
    )


def _flops(compiled: jax.stages.Compiled, subject: Subject) -> float:
    """Returns the compiler's count, or, if it has none, that of the program before optimization."""
    if costs := compiled.cost_analysis():
        return float(costs["flops"])
    function, arguments = subject.local
    costs = jax.jit(function).lower(*arguments).cost_analysis()
    return float(costs["flops"]) if costs else float("nan")


def main() -> int:
    """Reads a spec, compiles it and prints its measurement; returns 2 after a user's error."""
    try:
        answer: Any = asdict(measure(Spec(**json.load(sys.stdin))))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
