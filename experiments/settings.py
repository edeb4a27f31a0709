"""The flags that every command which trains has."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from experiments.config import Config, Entry
from experiments.methods.overrides import Overrides
from experiments.names import BUNDLED
from experiments.ranges import Count, Range


@dataclass(frozen=True)
class Source:
    """The data that a run is trained on."""

    dataset: Annotated[
        str,
        arg(
            help=f"What to train on: {', '.join(BUNDLED)} (bundled), FILE.npz or .csv, or a folder "
            "or tar of images train|test/CLASS/*.{jpg,png}. See the command datasets."
        ),
    ] = "digits"
    train_rows: Count | None = None
    """Train on so many of the training rows, the same ones under every seed; all if left out."""
    test_rows: Count | None = None
    """Evaluate on so many of the test rows, chosen likewise; all if left out."""


# The flags of the last base come first.
@dataclass(frozen=True)
class Settings(Overrides, Config, Source):
    """What is trained, on what, and how; the same for every method."""

    tensorboard: Path | None = None
    """A folder for TensorBoard's event files, METHOD/seed-SEED, as the run trains."""
    parallel: Entry = "jit"
    """How a step runs on several devices: by the compiler, or on each one's rows (pmap: legacy)."""
    mesh: str = ""
    """The devices by axis, as data=4,model=2: rows over data, units over model; else all data."""
    coordinator: str = ""
    """HOST:PORT of process 0 of several; needless on SLURM and TPU pods (or say auto)."""
    processes: Count | None = None
    """The number of processes, with --coordinator."""
    process_id: Annotated[int | None, Range(0, 2**31 - 1)] = None
    """Which of them this is, from 0; process 0 writes the files."""
