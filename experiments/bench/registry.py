"""The benchmarks."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax

from experiments.bench.compiled.command import bench_compiled
from experiments.bench.effective import bench_effective
from experiments.bench.inference import bench_inference
from experiments.bench.input import bench_input
from experiments.bench.lcw import bench_lcw
from experiments.bench.papers import bench_papers
from experiments.bench.peers import bench_peers
from experiments.bench.scaling import bench_scaling
from experiments.bench.start import bench_start
from experiments.bench.step import bench_step
from experiments.bench.throughput import bench_throughput
from experiments.bench.update import bench_update
from experiments.errors import unknown

#: ``flags -> None``; the flags are those of the command ``bench``.
BENCHMARKS: Mapping[str, Callable[[Any], None]] = MappingProxyType(
    {
        "step": bench_step,
        "update": bench_update,
        "inference": bench_inference,
        "start": bench_start,
        "lcw": bench_lcw,
        "effective": bench_effective,
        "peers": bench_peers,
        "throughput": bench_throughput,
        "scaling": bench_scaling,
        "input": bench_input,
        "papers": bench_papers,
        "compiled": bench_compiled,
    }
)


#: All of them, one after the other.
ALL = "all"

#: What a benchmark needs, where not every machine or call has it.
_NEEDS: Mapping[str, tuple[Callable[[Any], bool], str]] = MappingProxyType(
    {
        "input": (lambda flags: flags.data_dir is not None, "--data-dir"),
        "compiled": (lambda flags: False, "a target: see bench compiled --help"),
        "scaling": (lambda flags: len(jax.devices()) > 1, "several devices"),
    }
)


def find_benchmark(name: str) -> Callable[[Any], None]:
    """The benchmark of a name; without one, what lists them."""
    if not name:
        return _list
    if name == ALL:
        return _run_all
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    return BENCHMARKS[name]


def _run_all(flags: Any) -> None:
    for name, benchmark in BENCHMARKS.items():
        has, what = _NEEDS.get(name, (lambda flags: True, ""))
        print(f"\n{name}: {(benchmark.__doc__ or '').splitlines()[0]}\n")
        if has(flags):
            benchmark(flags)
        else:
            print(f"Left out: it needs {what}.")


def _list(flags: Any) -> None:
    for name, benchmark in BENCHMARKS.items():
        print(f"{name:<12}{(benchmark.__doc__ or '').splitlines()[0]}")
