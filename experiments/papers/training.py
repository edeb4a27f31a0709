"""One cell of a grid under one seed."""

import functools
from pathlib import Path

from experiments.config import Config
from experiments.data.augmentations import POLICIES
from experiments.data.dataset import Dataset
from experiments.methods.constrained import Sphere
from experiments.methods.flags import adjusted
from experiments.methods.method import Method
from experiments.methods.scale_noise import ScaleNoise
from experiments.methods.table import METHODS, Overrides
from experiments.papers.data import load_data
from experiments.papers.grid import Cell, Protocol
from experiments.papers.scores import scores_of
from experiments.training.fit import Run, fit
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

    def __call__(self, cell: Cell, seed: int) -> Run:
        """The run, without its final state."""
        setting = self._protocol.changed(**cell.changes)
        sizes = setting.rows, setting.test_rows, setting.held_out, setting.side
        data = self._dataset(cell.dataset, seed, *sizes)
        trainer = self._trainer_for(cell, setting, data)
        run = fit(trainer, data, seed)
        scores = scores_of(trainer, run.trained, data, setting.scores)
        return run._replace(state=None, scores=scores)

    def _load(self, name: str, seed: int, *sizes: int) -> Dataset:
        return load_data(self._data_dir, name, seed, *sizes)

    def _trainer_for(self, cell: Cell, setting: Protocol, data: Dataset) -> Trainer:
        """The cell's trainer, whose compiled functions all seeds share."""
        key = (cell.name, data.X_train.shape, data.num_classes)
        if self._trainer is None or self._trainer[0] != key:
            self._trainer = None
            config = config_of(setting, self._data_dir)
            self._trainer = key, make_trainer(method_of(cell, setting), config, data)
        return self._trainer[1]


def method_of(cell: Cell, setting: Protocol) -> Method:
    """The method of a cell, with what the cell and the protocol change of it."""
    method = METHODS[cell.method]
    if setting.growing_noise:
        method = method.changed(ScaleNoise, stddev=setting.growing_noise, grows=True)
    if setting.squared_radius:
        method = method.changed(Sphere, squared_radius=setting.squared_radius)
    return adjusted(method, Overrides(**cell.overrides))


def config_of(setting: Protocol, data_dir: Path | None = None) -> Config:
    """A protocol as training takes it, with the file of published policies where it has one."""
    setting = setting.changed(learning_rate=setting.learning_rate * setting.rate_scale)
    if data_dir and setting.policies and setting.augment == POLICIES:
        return setting.changed(augment=f"{POLICIES}:{data_dir / setting.policies}")
    return setting
