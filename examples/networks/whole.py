"""Whole networks by many methods, on one GPU or on a few cores.

    python -m examples.networks.whole --data FILE.npz --out FOLDER --networks ... --methods ...

Each (network, method, optimizer) is a job: a process, taken from a queue by ``--jobs`` workers. A
training is one compiled program; one compilation serves all rates, decays and seeds, and
``--lanes`` trainings at a time run as one mapped program. A job first trains at all rates and
decays under seed 0, chooses by the held-out rows, and then trains under the other seeds. Each
finished run is a line of FOLDER/runs.jsonl; what is there is not run again. After ``--deadline``
seconds no job starts.

Batch normalization is scored with statistics of training rows under the final parameters, estimated
anew. Runs that were scored by running statistics have no "statistics" in their lines: they stay
there, and are trained anew.
"""

import argparse
import fcntl
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from examples.networks.earlier import WARM_UP, completed, of_new

#: Settings that tell runs apart, in the order of a line.
KEYS = (
    "network",
    "method",
    "optimizer",
    "steps",
    "batch",
    "task",
    "side",
    "rows",
    "augment",
    "bfloat16",
    "refresh",
    "momentum",
    "statistics",
    "warm_up",
    "seed",
    "rate",
    "decay",
)

#: Rows to which initial parameters are fitted.
FITTED = {"photographs": 256, "shapes": 64, "pasted": 64}

Run = dict[str, Any]


def arguments() -> argparse.ArgumentParser:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="FILE.npz of photographs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", default="photographs", help="photographs, shapes or pasted")
    parser.add_argument("--networks", nargs="+", required=True)
    parser.add_argument("--methods", nargs="+", required=True)
    parser.add_argument("--optimizers", nargs="+", default=["sgd"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.03, 0.1, 0.3])
    parser.add_argument("--decays", type=float, nargs="+", default=[1e-3])
    parser.add_argument("--adamw-rates", type=float, nargs="+", default=[0.001, 0.003, 0.01])
    parser.add_argument("--adamw-decays", type=float, nargs="+", default=[1e-2])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--rows", type=int, nargs=3, default=[20000, 2000, 10000])
    parser.add_argument("--refresh", type=int, default=10, help="updates between input means")
    parser.add_argument("--momentum", type=float, default=0.9, help="of the input means")
    parser.add_argument("--warm-up", type=float, default=WARM_UP, help="share of the updates")
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--lanes", type=int, default=1, help="trainings mapped in one program")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--by-network", action="store_true", help="all methods of a network first")
    parser.add_argument("--deadline", type=float, default=math.inf)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    return parser


def settings(options: argparse.Namespace, network: str, method: str, optimizer: str) -> Run:
    """Returns what the runs of a job have in common."""
    return {
        "network": network,
        "method": method,
        "optimizer": optimizer,
        "steps": options.steps,
        "batch": options.batch,
        "task": options.task,
        "side": options.side,
        "rows": list(options.rows),
        "augment": options.augment,
        "bfloat16": options.bfloat16,
        "refresh": options.refresh if method.startswith("call") else 0,
        "momentum": options.momentum if method.startswith("call") else 0.0,
        "statistics": of_new(method),
        "warm_up": options.warm_up,
    }


def read_runs(folder: Path) -> list[Run]:
    """Returns the finished runs of a folder."""
    path = folder / "runs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key_of(run: Run) -> str:
    """Returns what tells a run apart."""
    known = completed(run)
    return json.dumps([known[name] for name in KEYS])


def append(folder: Path, runs: Iterable[Run]) -> None:
    """Adds finished runs, while other jobs may do so too."""
    with (folder / "runs.jsonl").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("".join(json.dumps(run) + "\n" for run in runs))


def best(runs: Iterable[Run]) -> Run:
    """Returns the finite run with the best held-out score, of equals that of the smaller rate."""
    return max(runs, key=lambda run: (run["finite"], run["held_out"], -run["rate"]))


def chunks(runs: list[Run], size: int) -> Iterator[list[Run]]:
    """Yields ``size`` runs at a time, the last ones filled up by repetition."""
    for begin in range(0, len(runs), size):
        chunk = runs[begin : begin + size]
        yield chunk + (size - len(chunk)) * chunk[-1:]


def grid(options: argparse.Namespace, common: Run) -> list[Run]:
    """Returns the runs under seed 0."""
    is_sgd = common["optimizer"] == "sgd"
    rates = options.rates if is_sgd else options.adamw_rates
    decays = options.decays if is_sgd else options.adamw_decays
    pairs = itertools.product(rates, decays)
    return [{**common, "seed": 0, "rate": rate, "decay": decay} for rate, decay in pairs]


def run_job(options: argparse.Namespace, common: Run) -> None:
    """Trains what is missing of a job."""
    finished = {key_of(run): run for run in read_runs(options.out)}
    first = grid(options, common)
    program: list[Any] = []

    def train(runs: list[Run]) -> None:
        missing = [run for run in runs if key_of(run) not in finished]
        if not missing:
            return
        if not program:
            program.append(compiled(options, common, missing[0]))
        for chunk in chunks(missing, options.lanes):
            done = program[0](chunk)
            unique = {key_of(run): run for run in done}
            append(options.out, unique.values())
            finished.update(unique)
            for run in unique.values():
                print(*(run[name] for name in (*KEYS[:3], *KEYS[-3:], *RESULTS)), flush=True)

    train(first)
    chosen = best(finished[key_of(run)] for run in first)
    train(
        [
            {**common, "seed": seed, "rate": chosen["rate"], "decay": chosen["decay"]}
            for seed in range(1, options.seeds)
        ]
    )


#: Measured values of a run.
RESULTS = ("initial_loss", "training_loss", "finite", "held_out", "test", "seconds")


def compiled(options: argparse.Namespace, common: Run, example: Run) -> Any:
    """Returns ``train(runs) -> finished runs``, compiled."""
    import jax

    begin = time.perf_counter()
    split, run = prepared(options, common)
    mapped = jax.vmap(run, in_axes=(None, 0, 0, 0)) if options.lanes > 1 else run
    shape = (options.lanes,) if options.lanes > 1 else ()
    traced = time.perf_counter()
    example_values = values(options.lanes * [example], shape)
    program = jax.jit(mapped).lower(split, *example_values).compile()
    print(
        f"{common['network']}, {common['method']}, {common['optimizer']}: prepared in "
        f"{traced - begin:.1f} s, compiled in {time.perf_counter() - traced:.1f} s, "
        f"{getattr(program.memory_analysis(), 'temp_size_in_bytes', 0) / 2**20:.0f} MiB",
        flush=True,
    )

    def train(runs: list[Run]) -> list[Run]:
        begin = time.perf_counter()
        outcome = program(split, *values(runs, shape))
        arrays = {name: np.atleast_1d(np.asarray(value)) for name, value in outcome.items()}
        return with_results(runs, arrays, (time.perf_counter() - begin) / len(runs))

    return train


def prepared(options: argparse.Namespace, common: Run) -> tuple[Any, Any]:
    """Returns the data on the device, and ``run(data, seed, rate, decay)``."""
    import jax

    from examples.networks.methods import prepare
    from examples.networks.tasks import load_task
    from examples.networks.training import Plan, make_run, standardized

    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        split, classes = load_task(options.task, options.data, options.side, options.rows)
        fitted_on = standardized(split.train.x[: FITTED[options.task]], split)
        network = prepare(common["method"], common["network"], fitted_on[:2], classes, fitted_on)
    plan = Plan(
        common["method"],
        common["optimizer"],
        options.steps,
        options.batch,
        common["refresh"],
        common["momentum"],
        options.augment,
        options.bfloat16,
        options.lanes > 1,
        classes,
        common["warm_up"],
    )
    return jax.device_put(split, jax.devices()[0]), make_run(network, plan)


def values(runs: list[Run], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Returns the seeds, rates and decays of runs, each an array of a shape."""
    import jax.numpy as jnp

    dtypes = {"seed": np.int32, "rate": np.float32, "decay": np.float32}
    return tuple(
        jnp.asarray(np.array([run[name] for run in runs], dtype).reshape(shape))
        for name, dtype in dtypes.items()
    )


def with_results(runs: list[Run], outcome: dict[str, Any], seconds: float) -> list[Run]:
    """Returns runs with their results, one entry of each array a run."""
    import jax

    device = jax.devices()[0].device_kind
    return [
        {
            **run,
            **{name: float(value[i]) for name, value in outcome.items()},
            "finite": bool(outcome["finite"][i]),
            "seconds": round(seconds, 3),
            "device": device,
        }
        for i, run in enumerate(runs)
    ]


def queue(options: argparse.Namespace) -> Iterator[Run]:
    """Yields the jobs: all networks of the first method first, or all methods of a network."""
    from examples.networks.built import ENTRIES
    from examples.networks.methods import METHODS

    unknown = [*(set(options.networks) - set(ENTRIES)), *(set(options.methods) - set(METHODS))]
    if unknown:
        raise SystemExit(f"unknown: {unknown}; networks {list(ENTRIES)}, methods {METHODS}.")
    jobs = list(itertools.product(options.methods, options.optimizers, options.networks))
    if options.by_network:
        jobs.sort(key=lambda job: options.networks.index(job[2]))
    for method, optimizer, network in jobs:
        if method in ("bn quiet", "call - quiet branches") and not ENTRIES[network].has_branches:
            continue
        yield settings(options, network, method, optimizer)


def environment(jobs: int) -> dict[str, str]:
    """Returns the environment of a worker, which shares the GPU's memory with the others."""
    return {
        **os.environ,
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.92 / jobs:.3f}",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "PYTHONUNBUFFERED": "1",
    }


def run_queue(options: argparse.Namespace) -> int:
    """Runs all jobs by ``options.jobs`` processes; returns the number of failed ones."""
    begin, failed = time.monotonic(), 0
    waiting, running = list(queue(options)), []
    command = [sys.executable, "-m", "examples.networks.whole", *sys.argv[1:]]
    while waiting or running:
        late = time.monotonic() - begin > options.deadline
        if late and waiting:
            print(f"the deadline has passed; {len(waiting)} jobs were not started", flush=True)
            waiting = []
        while waiting and len(running) < options.jobs:
            job = waiting.pop(0)
            process = subprocess.Popen(
                [*command, "--job", json.dumps(job)], env=environment(options.jobs)
            )
            running.append((process, job))
        time.sleep(0.2)
        for process, job in [pair for pair in running if pair[0].poll() is not None]:
            running.remove((process, job))
            if process.returncode:
                failed += 1
                names = ", ".join(job[name] for name in KEYS[:3])
                print(f"failed ({process.returncode}): {names}", flush=True)
    return failed


def main() -> None:
    """Runs one job, or the queue of all."""
    options = arguments().parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.job:
        run_job(options, json.loads(options.job))
        return
    sys.exit(min(1, run_queue(options)))


if __name__ == "__main__":
    main()
