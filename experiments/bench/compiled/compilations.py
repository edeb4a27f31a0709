"""Compilations in processes of their own, several at once."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.targets import environment, find_target
from experiments.bench.compiled.worker import Measurement

#: The folder of the checkout, where a process finds the experiments.
_ROOT = Path(__file__).parents[3]


def compiled(specs: Sequence[Spec], jobs: int) -> Iterator[tuple[Spec, Measurement | str]]:
    """Yields the measurement of each compilation as it ends, or the reason of its failure."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(compile_apart, spec): spec for spec in specs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def compile_apart(spec: Spec) -> Measurement | str:
    """Compiles in a new process, so that a crash of the compiler ends no other compilation."""
    ended = subprocess.run(
        [sys.executable, "-m", "experiments.bench.compiled.worker"],
        input=json.dumps(asdict(spec)),
        env=environment(find_target(spec.target), os.environ),
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == 0:
        return Measurement(**json.loads(ended.stdout.splitlines()[-1]))
    if ended.returncode < 0:
        return f"ended by signal {-ended.returncode}, as the system does when memory is short"
    return (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
