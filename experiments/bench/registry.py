"""The benchmarks by name."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.bench.input import bench_input
from experiments.bench.papers import bench_papers
from experiments.bench.step import bench_step
from experiments.bench.table import Measurements, write_and_show
from experiments.errors import UserError, check_known
from experiments.runs.files import prepare_folder

#: ``flags -> rows``; the flags are those of the command ``bench``.
BENCHMARKS: Mapping[str, Callable[[Any], Measurements]] = {
    "step": bench_step,
    "input": bench_input,
    "papers": bench_papers,
}

COMPILED = "Costs of steps as compilers for TPUs and GPUs state them; it has its own flags."


def run_benchmark(name: str, flags: Any) -> None:
    """Runs the benchmark of a name; lists all if the name is empty.

    Raises UserError for an unknown name.
    """
    check_known("benchmark", name, (*BENCHMARKS, "compiled"))
    if name == "compiled":
        raise UserError("bench compiled has its own flags; write them behind the name.")
    if name:
        prepare_folder(flags.out)
        write_and_show(BENCHMARKS[name](flags), name, flags.out)
    else:
        for each, benchmark in BENCHMARKS.items():
            print(f"{each:<12}{(benchmark.__doc__ or '').splitlines()[0]}")
        print(f"{'compiled':<12}{COMPILED}")
