"""One cell of a grid under one seed."""

import functools
from pathlib import Path

from experiments.data.augmentations import POLICIES
from experiments.data.dataset import Dataset
from experiments.methods.flags import adjusted
from experiments.methods.method import Method
from experiments.methods.optimizer import OptimizerSettings
from experiments.methods.scale_noise import ScaleNoise
from experiments.methods.table import METHODS, Overrides
from experiments.models.registry import ModelSettings
from experiments.papers.data import load_data
from experiments.papers.grid import Cell, Protocol
from experiments.training.fit import Run, fit
from experiments.training.trainer import Trainer, TrainingSettings, make_trainer


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
        setting = self._protocol._replace(**cell.changes)
        data = self._dataset(cell.dataset, seed, setting.rows, setting.test_rows)
        return fit(self._trainer_for(cell, setting, data), data, seed)._replace(state=None)

    def _load(self, name: str, seed: int, rows: int, test_rows: int) -> Dataset:
        return load_data(self._data_dir, name, seed, rows, test_rows)

    def _trainer_for(self, cell: Cell, setting: Protocol, data: Dataset) -> Trainer:
        """The cell's trainer, whose compiled functions all seeds share."""
        key = (cell.name, data.X_train.shape, data.num_classes)
        if self._trainer is None or self._trainer[0] != key:
            self._trainer = None
            settings = settings_of(setting, self._data_dir)
            self._trainer = key, make_trainer(method_of(cell, setting), settings, data)
        return self._trainer[1]


def method_of(cell: Cell, setting: Protocol) -> Method:
    """The method of a cell, with what the cell and the protocol change of it."""
    method = METHODS[cell.method]
    if setting.growing_noise:
        method = method.changed(ScaleNoise, stddev=setting.growing_noise, grows=True)
    return adjusted(method, Overrides(**cell.overrides))


def settings_of(setting: Protocol, data_dir: Path | None = None) -> TrainingSettings:
    """A protocol as training takes it."""
    augment = setting.augment
    if data_dir and setting.policies and augment == POLICIES:
        augment = f"{augment}:{data_dir / setting.policies}"
    return TrainingSettings(
        ModelSettings(
            setting.model, setting.activation, setting.depth, setting.width, setting.channels
        ),
        OptimizerSettings(
            setting.optimizer, setting.learning_rate, setting.weight_decay, setting.drops
        ),
        setting.epochs,
        setting.batch_size,
        augment,
    )
