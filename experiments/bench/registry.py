"""The benchmarks by name."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.bench.input import bench_input
from experiments.bench.papers import bench_papers
from experiments.bench.step import bench_step
from experiments.bench.table import Measurements, Missing, write_and_show
from experiments.config import check_known
from experiments.runs.files import prepare_folder

#: ``flags -> rows``; the flags are those of the command ``bench``.
BENCHMARKS: Mapping[str, Callable[[Any], Measurements]] = {
    "step": bench_step,
    "input": bench_input,
    "papers": bench_papers,
}

#: The name of all benchmarks.
ALL = "all"

COMPILED = "Costs of steps as compilers for TPUs and GPUs state them; it has its own flags."


def run_benchmark(name: str, flags: Any) -> None:
    """Runs the benchmark of a name, or all; lists them if the name is empty.

    Raises UserError for an unknown name.
    """
    check_known("benchmark", name, (*BENCHMARKS, "compiled", ALL))
    if not name:
        for each in BENCHMARKS:
            print(f"{each:<12}{_title(each)}")
        print(f"{'compiled':<12}{COMPILED}")
    elif name == ALL:
        for each in BENCHMARKS:
            print(f"\n{each}: {_title(each)}\n")
            try:
                _run(each, flags)
            except Missing as error:
                print(f"Left out: {error}")
    else:
        _run(name, flags)


def _title(name: str) -> str:
    return (BENCHMARKS[name].__doc__ or "").splitlines()[0]


def _run(name: str, flags: Any) -> None:
    prepare_folder(flags.out)
    write_and_show(BENCHMARKS[name](flags), name, flags.out)
