"""A tiny dataset, and methods trained on it once for all tests."""

import csv
import functools
from pathlib import Path

import numpy as np

from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.methods.table import METHODS
from experiments.training.run import Epoch, Run
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer, make_trainer

SETTINGS = Config(depth=2, width=8, epochs=3, batch_size=16)


def toy_dataset(seed: int = 0, rows: int = 70) -> Dataset:
    """Makes three classes around three points of six dimensions; 70 training and 23 test rows."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows + 23).astype(np.int32)
    X = (random.normal(size=(len(y), 6)) + 4.0 * np.eye(3, 6)[y]).astype(np.float32)
    return Dataset(X[:rows], y[:rows], X[rows:], y[rows:], "toy", 3)


def save_toy(folder: Path) -> str:
    """Saves the toy dataset, and returns the path of the file."""
    data = toy_dataset()
    path = folder / "toy.npz"
    np.savez(path, X=np.concatenate([data[0], data[2]]), y=np.concatenate([data[1], data[3]]))
    return str(path)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Reads the rows of a csv file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_of(method: str, seed: int = 0, accuracy: float = 0.5, loss: float = 1.0) -> Run:
    """Makes a run of one epoch that ends with it."""
    return Run(method, seed, [Epoch(1, 1.0, 0.5, loss, accuracy)], 1.0, 10, None)


@functools.cache
def toy_trainer(name: str, base: str = "sgd", constrain_head: bool = False) -> Trainer:
    """Makes the trainer of a method on the toy dataset; all tests share what it compiles."""
    rate = 0.02 if base == "adam" else 0.05
    # A group of group normalization has sixteen units.
    width = 16 if "gn" in name.split("+") else SETTINGS.width
    options = {"optimizer": base, "learning_rate": rate, "width": width}
    config = SETTINGS.changed(**options, constrain_head=constrain_head)
    return make_trainer(METHODS[name], config, toy_dataset())


def after_an_epoch(trainer: Trainer) -> TrainState:
    """Returns the state after the first epoch."""
    data = toy_dataset()
    return trainer.epoch(start(trainer, 0), data.X_train, data.y_train)[0]


def start(trainer: Trainer, seed: int) -> TrainState:
    """Returns the trainer's initial state on the toy dataset."""
    return trainer.init(np.uint32(seed), toy_dataset().X_train)
