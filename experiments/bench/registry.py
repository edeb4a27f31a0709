"""The benchmarks."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax

from experiments.bench.effective import bench_effective
from experiments.bench.inference import bench_inference
from experiments.bench.input import bench_input
from experiments.bench.lcw import bench_lcw
from experiments.bench.papers import bench_papers
from experiments.bench.peers import bench_peers
from experiments.bench.scaling import bench_scaling
from experiments.bench.start import bench_start
from experiments.bench.step import bench_step
from experiments.bench.table import Measured, write_and_show
from experiments.bench.throughput import bench_throughput
from experiments.bench.update import bench_update
from experiments.errors import UserError, unknown
from experiments.reports.files import prepare_folder

#: ``flags -> rows``; the flags are those of the command ``bench``.
BENCHMARKS: Mapping[str, Callable[[Any], Measured]] = MappingProxyType(
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
    }
)

#: All of them, one after the other.
ALL = "all"

#: What a benchmark needs, where not every machine or call has it.
_NEEDS: Mapping[str, tuple[Callable[[Any], bool], str]] = MappingProxyType(
    {
        "input": (
            lambda flags: flags.data_dir is not None,
            "--data-dir, a folder train|test/CLASS/*.jpg or that of a TensorFlow dataset; give "
            "--enlarged 2000 too if they are small and of one size",
        ),
        "scaling": (
            lambda flags: len(jax.devices()) > 1,
            "several devices; on a CPU set the environment variable JAX_NUM_CPU_DEVICES=8",
        ),
    }
)


def run_benchmark(name: str, flags: Any) -> None:
    """Runs the benchmark of a name, or all; without one, lists them."""
    if name not in (*BENCHMARKS, ALL, ""):
        raise unknown("benchmark", name, [*BENCHMARKS, "compiled"])
    for each, benchmark in BENCHMARKS.items():
        title, missing = (benchmark.__doc__ or "").splitlines()[0], _missing(each, flags)
        if not name:
            print(f"{each:<12}{title}")
        elif name == ALL and missing:
            print(f"\n{each}: {title}\n\nLeft out: it needs {missing}.")
        elif name == each and missing:
            raise UserError(f"bench {name} needs {missing}.")
        elif name in (each, ALL):
            prepare_folder(flags.out)
            if name == ALL:
                print(f"\n{each}: {title}\n")
            write_and_show(benchmark(flags), each, flags.out)
    if not name:
        print(
            "compiled    What compilers of TPUs and GPUs make of a step; it has flags of its own."
        )


def _missing(name: str, flags: Any) -> str:
    """What a benchmark needs and has not; empty for nothing."""
    has, what = _NEEDS.get(name, (lambda flags: True, ""))
    return "" if has(flags) else what
