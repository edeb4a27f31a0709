"""Every cell of a grid under every seed: its runs in the store, the others trained."""

import functools
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.methods.constrained import Sphere
from experiments.methods.method import Method
from experiments.methods.overrides import Overrides
from experiments.methods.scale_noise import ScaleNoise
from experiments.methods.table import METHODS
from experiments.names import POLICIES
from experiments.papers.data import data_of, load_data
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context
from experiments.papers.scores import scores_of
from experiments.runs.execute import Make, execute
from experiments.runs.spec import Spec
from experiments.runs.store import Store
from experiments.training.fit import Run, fit
from experiments.training.history import Checkpointer
from experiments.training.trainer import Trainer, make_trainer


class Training:
    """Trains cells of a grid; it keeps the last cell's program and its data, by seed.

    Args:
        protocol: of the grid.
        data_dir: the folder of the data, or None.
    """

    def __init__(self, protocol: Protocol, data_dir: Path | None):
        self._protocol, self._data_dir = protocol, data_dir
        # Cells come one after the other, each in all seeds; nothing older is needed again.
        self._dataset = functools.lru_cache(maxsize=protocol.seeds)(self._load)
        self._trainer: tuple[tuple[object, ...], Trainer] | None = None

    def __call__(self, spec: Spec, keeper: Checkpointer) -> Run:
        """The run, without its final state."""
        own, overrides = apart(spec)
        setting = self._protocol.changed(**own)
        sizes = setting.rows, setting.test_rows, setting.held_out, setting.side
        data = self._dataset(spec.data[0], spec.seed, *sizes)
        trainer = self._trainer_for(spec, setting, overrides, data)
        run = fit(trainer, data, spec.seed, checkpointer=keeper)
        scores = scores_of(trainer, run.trained, data, setting.scores)
        return run._replace(state=None, scores=scores, changes=spec.changes)

    def _load(self, name: str, seed: int, *sizes: int) -> Dataset:
        return load_data(self._data_dir, name, seed, *sizes)

    def _trainer_for(
        self, spec: Spec, setting: Protocol, overrides: Mapping[str, Any], data: Dataset
    ) -> Trainer:
        """The cell's trainer, whose compiled functions all seeds share."""
        key = (spec.name, spec.data, data.X_train.shape, data.num_classes)
        if self._trainer is None or self._trainer[0] != key:
            self._trainer = None
            config = config_of(setting, self._data_dir)
            method = method_of(Cell("", spec.method, overrides=overrides), setting)
            self._trainer = key, make_trainer(method, config, data)
        return self._trainer[1]


def spec_of(cell: Cell, seed: int, protocol: Protocol, data: tuple[str, object]) -> Spec:
    """A cell under a seed, on the data of that name and number."""
    changes = (*cell.changes.items(), *cell.overrides.items())
    return Spec(cell.method, seed, protocol, changes, data)


def apart(spec: Spec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The changes of a cell: fields of its protocol, and settings of its method."""
    of_method = {field.name for field in fields(Overrides)}
    own = {name: value for name, value in spec.changes if name not in of_method}
    return own, {name: value for name, value in spec.changes if name in of_method}


def method_of(cell: Cell, setting: Protocol) -> Method:
    """The method of a cell, with what the cell and the protocol change of it."""
    method = METHODS[cell.method]
    if setting.growing_noise:
        method = method.changed(ScaleNoise, noise=setting.growing_noise, grows=True)
    if setting.squared_radius:
        method = method.changed(Sphere, squared_radius=setting.squared_radius)
    return method.adjusted(Overrides(**cell.overrides))


def config_of(setting: Protocol, data_dir: Path | None = None) -> Config:
    """A protocol as training takes it, with the file of published policies where it has one."""
    setting = setting.changed(learning_rate=setting.learning_rate * setting.rate_scale)
    if data_dir and setting.policies and setting.augment == POLICIES:
        return setting.changed(augment=f"{POLICIES}:{data_dir / setting.policies}")
    return setting


class Trained(NamedTuple):
    """A cell, and its runs under all seeds in their order."""

    cell: Cell
    runs: list[Run]


def train_grid(grid: Grid, protocol: Protocol, context: Context) -> list[Trained]:
    """All runs of a grid; what is in the store of the folder is not trained again."""
    cells = chosen(grid, protocol)
    data = data_of(context.data_dir, [cell.dataset for cell in cells])
    specs = {
        cell.name: [
            spec_of(cell, seed, protocol, (cell.dataset, data[cell.dataset]))
            for seed in range(protocol.seeds)
        ]
        for cell in cells
    }
    names = {spec: f"{name}, seed {spec.seed}" for name, own in specs.items() for spec in own}
    runs = runs_of(names, partial(Training, protocol, context.data_dir), context)
    return [Trained(cell, [runs[spec] for spec in specs[cell.name]]) for cell in cells]


def runs_of(names: Mapping[Spec, str], make: Make, context: Context) -> dict[Spec, Run]:
    """The run of each spec: of the store in the folder of the report, or else trained.

    Args:
        names: what each is called where progress is shown.
        make: makes what trains a spec.
        context: of the report.
    """
    store, say = Store(context.out), partial(print, file=sys.stderr)
    runs = store.found(names)
    missing = [spec for spec in names if spec not in runs]
    for spec, run in execute(missing, make, store, context.workers, say):
        runs[spec] = run
        context.advance(len(runs) / len(names), names[spec])
    return runs


def chosen(grid: Grid, protocol: Protocol) -> list[Cell]:
    """The cells that a protocol trains."""
    return [
        cell
        for cell in grid.cells
        if (not protocol.only_rows or cell.row in protocol.only_rows)
        and (not protocol.only_columns or cell.column in protocol.only_columns)
    ]
