"""One of two processes that train together, with two devices each; see `test_processes`.

The arguments are its number, the coordinator's address, and the folder of the data and results.
"""

import sys
from pathlib import Path

import jax
import numpy as np

from experiments._cli import main
from experiments.training import Ahead, make_placement
from tests.experiments.parallel import BATCH, DATA, batches, trainer

SIZES = ["--depth", "1", "--width", "8", "--epochs", "2", "--batch-size", "16"]


def flags(folder: Path, out: str) -> list[str]:
    return [
        "train",
        "--method",
        "cwo",
        "--dataset",
        str(folder / "toy.npz"),
        "--out",
        str(folder / out),
        *SIZES,
    ]


def train_on_own_rows() -> list[np.ndarray]:
    """The parameters after steps with bn, for which each process loads its own rows only."""
    where = make_placement()
    subject, own = trainer("bn", where), where.own_rows(BATCH)
    assert len(own) == BATCH // jax.process_count()
    state = subject.init(np.uint32(3), where.replicate(DATA.X_train))
    step = Ahead(subject.step, donate_argnums=0)
    for X, y in zip(*batches(), strict=True):
        state, _ = step(state, where.feed((X[own], y[own]), BATCH))
    return jax.device_get(jax.tree.leaves(state.params))


def run(number: str, coordinator: str, folder: Path) -> None:
    """By the command line first, which is what connects the two."""
    connect = ["--coordinator", coordinator, "--processes", "2", "--process-id", number]
    assert main([*flags(folder, f"process{number}"), *connect]) == 0
    assert (jax.process_count(), jax.device_count()) == (2, 4)
    np.savez(folder / f"parameters{number}.npz", *train_on_own_rows())


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    run(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
