"""One of two processes that train together, with two devices each; see `test_processes`.

The arguments are its number, the coordinator's address, and the folder of the data and results.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np

from experiments.cli import main
from experiments.training.devices import make_placement
from tests.experiments.parallel import BATCH, train

#: pmap is for the devices of one process.
ENTRIES = ("jit", "shard_map")

SIZES = ["--depth", "1", "--width", "8", "--batch-size", "16"]


def flags(folder: Path, out: str, epochs: int = 2) -> list[str]:
    return [
        "train",
        "--method",
        "cwo",
        "--dataset",
        str(folder / "toy.npz"),
        "--out",
        str(folder / out),
        "--epochs",
        str(epochs),
        *SIZES,
    ]


def train_all(folder: Path, number: str) -> None:
    """Writes the final states of all methods, in either parallelism that spans processes."""
    for entry in ENTRIES:
        where = make_placement(entry)
        assert len(where.own_rows(BATCH)) == BATCH // 2
        leaves = jax.device_get(jax.tree.leaves(train(where)))
        np.savez(folder / f"{entry}{number}.npz", *leaves)


def train_until_the_other_is_asked_to_leave(folder: Path, number: str) -> int:
    """Returns the exit status of a run of which only process 1 gets a signal."""
    kept = folder / "kept"
    if number == "1":
        threading.Thread(target=ask_to_leave_after, args=(kept / "1",), daemon=True).start()
    return main([*flags(folder, "stopped", 1000), "--checkpoint-dir", str(kept)])


def ask_to_leave_after(checkpoint: Path) -> None:
    """Sends this process a SIGTERM once that checkpoint exists."""
    while not checkpoint.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)


def run(number: str, coordinator: str, folder: Path) -> int:
    """Connects the two processes, and runs command lines that find them connected."""
    jax.distributed.initialize(coordinator, 2, int(number))
    assert main(flags(folder, f"process{number}")) == 0
    assert (jax.process_count(), jax.device_count()) == (2, 4)
    data, out = str(folder / "toy.npz"), str(folder / f"compared{number}")
    for methods in ("none", "none,cwo"):
        command = ["compare", "--methods", methods, "--seeds", "1", "--epochs", "1", *SIZES]
        assert main([*command, "--dataset", data, "--out", out]) == 0
    train_all(folder, number)
    return train_until_the_other_is_asked_to_leave(folder, number)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    number, coordinator, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    # Not the process's own standard output: the transport's threads write of themselves to that.
    with (folder / f"out{number}.txt").open("w") as printed, contextlib.redirect_stdout(printed):
        sys.exit(run(number, coordinator, folder))
