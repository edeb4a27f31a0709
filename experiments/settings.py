"""The flags that all commands that train share."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, arg

from experiments.config import Config, Network, Parallelism, Training
from experiments.methods.overrides import Overrides
from experiments.names import BUNDLED
from experiments.ranges import Count, Jobs, Range


@dataclass(frozen=True)
class Source:
    """The data that a network is trained on."""

    dataset: Annotated[
        str,
        arg(
            help=f"The data: {', '.join(BUNDLED)} (bundled), FILE.npz or .csv, or a folder, zip or "
            "tar of images train|test/CLASS/* or CLASS/*. See the command datasets."
        ),
    ] = "digits"
    train_rows: Count | None = None
    """The number of training rows that are used, the same rows under every seed. If the flag is
    left out, all are used."""
    test_rows: Count | None = None
    """The number of test rows that are used, the same rows under every seed. If the flag is left
    out, all are used."""
    label: str | None = None
    """The name of a table's column of classes. If the flag is left out, it is the column called
    label, class, target or y, or else the only column of words, or else the last."""
    resize: Count | None = None
    """The side of squares that images become: the middle of each, resized. If the flag is left out,
    images must have one size."""


@dataclass(frozen=True)
class Devices:
    """The devices on which the network is trained."""

    parallel: Parallelism = "jit"
    """The parallelism of a step on several devices. With jit the compiler spreads it; with
    shard_map, and with pmap, JAX's older way, each device runs the step on its own rows."""
    mesh: str = ""
    """The devices by axis, as data=4,model=2. Rows are spread over data, and units over model. If
    the flag is left out, all devices are along data."""
    coordinator: str = ""
    """HOST:PORT of process 0, if there are several processes. On SLURM and on TPU pods say auto, or
    leave the flag out."""
    processes: Count | None = None
    """The number of processes; it goes with --coordinator."""
    process_id: Annotated[int | None, Range(0, 2**31 - 1)] = None
    """The number of this process, from 0; process 0 writes the files."""


@dataclass(frozen=True)
class Settings(Devices, Overrides, Config, Source):
    """Data, network, training, method settings and devices; the same for every method."""

    tensorboard: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Trains:
    """The flags of a command that trains, in the groups that its help shows."""

    data: OmitArgPrefixes[Source] = field(default_factory=Source)
    network: OmitArgPrefixes[Network] = field(default_factory=Network)
    training: OmitArgPrefixes[Training] = field(default_factory=Training)
    parts: OmitArgPrefixes[Overrides] = field(default_factory=Overrides)
    devices: OmitArgPrefixes[Devices] = field(default_factory=Devices)
    tensorboard: Path | None = None
    """The folder for TensorBoard's event files, METHOD/seed-SEED, written while the run trains."""

    @property
    def settings(self) -> Settings:
        """The flags of all groups in one record, for training, the store and checkpoints."""
        groups = (self.data, self.network, self.training, self.parts, self.devices)
        flags = {each.name: getattr(group, each.name) for group in groups for each in fields(group)}
        return Settings(**flags, tensorboard=self.tensorboard)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The processes, or the cluster, that train runs."""

    jobs: Jobs = 1
    """The number of runs at once, each in a process with its share of the cores and GPUs."""
    ray: str = ""
    """Train on a Ray cluster: auto, or the address of its head. Each run is a task. A task whose
    node dies goes on from its checkpoint on another: all nodes must see the folder that the command
    is called in, the data and --out. The guide to clusters shows how to start one."""
    ray_cpus: Count = 1
    """The CPUs of a run on the Ray cluster."""
    ray_gpus: Annotated[float, Range(0, 2**10)] = 0.0
    """The GPUs of a run on the Ray cluster; with 0.5 two runs share one."""

    @property
    def uses_processes(self) -> bool:
        """True if other processes than the first one train the runs."""
        return self.jobs > 1 or bool(self.ray)


#: One run at a time, in this process.
HERE = Workers()
