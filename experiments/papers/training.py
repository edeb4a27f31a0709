"""The training of every cell of a grid under every seed that the store does not have."""

import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from experiments.augmentation.table import POLICIES
from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.methods.constrained import Sphere
from experiments.methods.method import Method
from experiments.methods.scale_noise import ScaleNoise
from experiments.methods.table import METHODS
from experiments.papers.data import load_data
from experiments.papers.grid import Cell, Protocol
from experiments.papers.item import Context
from experiments.papers.scores import scores_of, version_of
from experiments.runs.comparison import execute
from experiments.runs.progress import tell
from experiments.runs.spec import Spec, parts_beside, rows_digest
from experiments.runs.store import Store
from experiments.training.chance import explained
from experiments.training.fit import fit
from experiments.training.history import Checkpointer
from experiments.training.programs import program_digests
from experiments.training.run import Run
from experiments.training.trainer import Trainer, Trainers


class GridTraining:
    """Trains the specs of a grid; it keeps the last cell's program and data.

    Args:
        protocol: the protocol of the grid.
        data_dir: the folder of the data, or None.
    """

    def __init__(self, protocol: Protocol, data_dir: Path | None):
        self._protocol, self._data_dir = protocol, data_dir
        # Cells come one after the other, each in all seeds, so one cell's data suffice.
        self._load = lru_cache(maxsize=protocol.seeds)(partial(load_data, data_dir))
        self._trainers = Trainers(most=1)
        self._programs: dict[object, dict[str, str]] = {}

    def __call__(self, spec: Spec, keeper: Checkpointer) -> Run:
        """Trains a spec, and returns the run without its final state."""
        spec.check_unchanged(self.parts(spec))
        data, trainer = self._dataset(spec), self._trainer(spec)
        run = explained(fit(trainer, data, spec.seed, checkpointer=keeper), trainer, data)
        scores = scores_of(trainer, run.trained, data, self._setting(spec).scores)
        return run._replace(state=None, scores=scores, changes=spec.changes)

    def parts(self, spec: Spec) -> dict[str, str]:
        """Returns the parts of a spec's key, as this process has them."""
        data = self._dataset(spec)
        key = spec.method, spec.changes, data.signature
        if key not in self._programs:
            self._programs[key] = program_digests(self._trainer(spec), data)
        names = self._setting(spec).scores
        scores = {"scores": version_of(names)} if names else {}
        return self._programs[key] | scores | parts_beside(spec.described, rows_digest(data))

    def _setting(self, spec: Spec) -> Protocol:
        return self._protocol.changed(**dict(spec.changes))

    def _dataset(self, spec: Spec) -> Dataset:
        setting = self._setting(spec)
        sizes = setting.train_rows, setting.test_rows, setting.held_out, setting.side
        return self._load(spec.data, spec.seed, *sizes)

    def _trainer(self, spec: Spec) -> Trainer:
        setting = self._setting(spec)
        method, config = method_of(spec.method, setting), config_of(setting, self._data_dir)
        return self._trainers.of(method, config, self._dataset(spec))


def spec_of(cell: Cell, seed: int, protocol: Protocol) -> Spec:
    """Makes the spec of a cell under a seed."""
    return Spec(cell.method, seed, protocol, tuple(cell.changes.items()), cell.dataset)


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
    specs = {
        cell.name: [spec_of(cell, seed, protocol) for seed in range(protocol.seeds)]
        for cell in cells
    }
    names = {spec: f"{name}, seed {spec.seed}" for name, each in specs.items() for spec in each}
    runs = runs_of(names, partial(GridTraining, protocol, context.data_dir), context)
    return [Trained(cell, [runs[spec] for spec in specs[cell.name]]) for cell in cells]


class KeyedTraining(typing.Protocol):
    """A training that knows what a spec's key is made of."""

    def __call__(self, spec: Spec, keeper: Checkpointer) -> Run:
        """Trains a spec."""

    def parts(self, spec: Spec) -> dict[str, str]:
        """Returns the parts of a spec's key."""


def runs_of(
    names: Mapping[Spec, str], make: Callable[[], KeyedTraining], context: Context
) -> dict[Spec, Run]:
    """Returns the run of each spec, from the store in the folder of the report, or trained.

    Args:
        names: the specs without their parts, with their names for the progress bar.
        make: returns the function from a spec to its run.
        context: the context of the item.
    """
    store, here = Store(context.out), make()
    specs = {spec.made_of(here.parts(spec)): spec for spec in names}
    runs = {specs[keyed]: run for keyed, run in store.finished(specs).items()}
    missing = [keyed for keyed, spec in specs.items() if spec not in runs]
    for line in store.why_not(missing):
        tell(line)
    there = make if context.workers.uses_processes else lambda: here
    for keyed, run, _ in execute(missing, there, store, context.workers, tell):
        runs[specs[keyed]] = run
        context.advance(len(runs) / len(names), names[specs[keyed]])
    return runs
