"""The training of every cell of a grid under every seed that the store does not have."""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from experiments.augmentation.table import POLICIES
from experiments.config import Config
from experiments.methods.constrained import Sphere
from experiments.methods.method import Method
from experiments.methods.scale_noise import ScaleNoise
from experiments.methods.table import METHODS
from experiments.papers.data import data_of, load_data
from experiments.papers.grid import Cell, Protocol
from experiments.papers.item import Context
from experiments.papers.scores import scores_of
from experiments.runs.comparison import execute
from experiments.runs.jobs import Make, Training
from experiments.runs.spec import Spec
from experiments.runs.store import Store
from experiments.training.chance import explained
from experiments.training.fit import fit
from experiments.training.history import Checkpointer
from experiments.training.run import Run
from experiments.training.trainer import Trainers


def training(protocol: Protocol, data_dir: Path | None) -> Training:
    """Makes a function that trains a spec of a grid; it keeps the last cell's program and data.

    Args:
        protocol: the protocol of the grid.
        data_dir: the folder of the data, or None.
    """
    # Cells come one after the other, each in all seeds, so one cell's data suffice.
    dataset = lru_cache(maxsize=protocol.seeds)(partial(load_data, data_dir))
    trainers = Trainers(most=1)

    def train_spec(spec: Spec, keeper: Checkpointer) -> Run:
        setting = protocol.changed(**dict(spec.changes))
        sizes = setting.train_rows, setting.test_rows, setting.held_out, setting.side
        data = dataset(spec.data[0], spec.seed, *sizes)
        trainer = trainers.of(method_of(spec.method, setting), config_of(setting, data_dir), data)
        run = explained(fit(trainer, data, spec.seed, checkpointer=keeper), trainer, data)
        scores = scores_of(trainer, run.trained, data, setting.scores)
        return run._replace(state=None, scores=scores, changes=spec.changes)

    return train_spec


def spec_of(cell: Cell, seed: int, protocol: Protocol, data: tuple[str, object]) -> Spec:
    """Makes the spec of a cell under a seed, on the data of that name and fingerprint."""
    return Spec(cell.method, seed, protocol, tuple(cell.changes.items()), data)


def method_of(name: str, setting: Protocol) -> Method:
    """Returns a method with the noise and radius of the protocol, then its settings of parts."""
    method = METHODS[name]
    if setting.growing_noise:
        method = method.changed(ScaleNoise, noise=setting.growing_noise, grows=True)
    if setting.squared_radius:
        method = method.changed(Sphere, squared_radius=setting.squared_radius)
    return method.adjusted(setting)


def config_of(setting: Protocol, data_dir: Path | None = None) -> Config:
    """Returns the configuration of a protocol's training, with the file of published policies."""
    setting = setting.changed(learning_rate=setting.learning_rate * setting.rate_scale)
    if data_dir and setting.policies and setting.augment == POLICIES:
        return setting.changed(augment=f"{POLICIES}:{data_dir / setting.policies}")
    return setting


class Trained(NamedTuple):
    """A cell, and its runs under all seeds in their order."""

    cell: Cell
    runs: list[Run]


def train_grid(cells: Sequence[Cell], protocol: Protocol, context: Context) -> list[Trained]:
    """Returns all runs of some cells; trains those that the folder's store does not have."""
    data = data_of(context.data_dir, [cell.dataset for cell in cells])
    specs = {
        cell.name: [
            spec_of(cell, seed, protocol, (cell.dataset, data[cell.dataset]))
            for seed in range(protocol.seeds)
        ]
        for cell in cells
    }
    names = {spec: f"{name}, seed {spec.seed}" for name, each in specs.items() for spec in each}
    runs = runs_of(names, partial(training, protocol, context.data_dir), context)
    return [Trained(cell, [runs[spec] for spec in specs[cell.name]]) for cell in cells]


def runs_of(names: Mapping[Spec, str], make: Make, context: Context) -> dict[Spec, Run]:
    """Returns the run of each spec, from the store in the folder of the report, or trained.

    Args:
        names: the specs, with their names for the progress bar.
        make: returns the function from a spec to its run.
        context: the context of the item.
    """
    store, say = Store(context.out), partial(print, file=sys.stderr)
    runs = store.finished(names)
    missing = [spec for spec in names if spec not in runs]
    for spec, run in execute(missing, make, store, context.workers, say):
        runs[spec] = run
        context.advance(len(runs) / len(names), names[spec])
    return runs
