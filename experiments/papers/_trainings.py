"""Training every cell of a grid under every seed, and keeping what is finished."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from experiments.data import Dataset
from experiments.methods import METHODS, OptimizerSettings, Overrides, Recipe, adjusted
from experiments.models import ModelSettings
from experiments.papers._data import load_data
from experiments.papers._grid import Cell, Grid, Protocol
from experiments.papers._item import Context
from experiments.papers._kept import RUNS, read_kept, write_kept
from experiments.training import Epoch, Run, Trainer, TrainingSettings, fit, make_trainer


class Trained(NamedTuple):
    """A cell under a seed."""

    cell: Cell
    seed: int
    run: Run


def train_grid(grid: Grid, protocol: Protocol, context: Context) -> list[Trained]:
    """All runs of a grid; those that an earlier call with the same protocol finished are kept."""
    kept = read_runs(context.out / RUNS, protocol)
    trained: list[Trained] = []
    trainer_for, dataset_for = _trainers(), _datasets(context.data_dir, protocol.seeds)
    cells = chosen(grid, protocol)
    total = len(cells) * protocol.seeds
    for cell in cells:
        setting = protocol._replace(**cell.changes)
        for seed in range(protocol.seeds):
            run = kept.get((cell.name, seed))
            if run is None:
                data = dataset_for(cell.dataset, seed, setting.rows, setting.test_rows)
                run = fit(trainer_for(cell, setting, data), data, seed)._replace(state=None)
            trained.append(Trained(cell, seed, run))
            write_runs(context.out / RUNS, protocol, trained)
            context.advance(len(trained) / total, f"{cell.name}, seed {seed}")
    return trained


def chosen(grid: Grid, protocol: Protocol) -> list[Cell]:
    """The cells that a protocol trains."""
    return [
        cell
        for cell in grid.cells
        if (not protocol.only_rows or cell.row in protocol.only_rows)
        and (not protocol.only_columns or cell.column in protocol.only_columns)
    ]


def recipe_of(cell: Cell, setting: Protocol) -> Recipe:
    """The method of a cell, with what the cell and the protocol change of it."""
    recipe = METHODS[cell.method]
    if setting.growing_noise and recipe.noise is not None:
        recipe = replace(recipe, noise=setting.growing_noise, noise_grows=True)
    return adjusted(recipe, Overrides(**cell.overrides))


def settings_of(setting: Protocol) -> TrainingSettings:
    """A protocol as training takes it."""
    return TrainingSettings(
        ModelSettings(
            setting.model, setting.activation, setting.depth, setting.width, setting.channels
        ),
        OptimizerSettings(
            setting.optimizer, setting.learning_rate, setting.weight_decay, setting.drops
        ),
        setting.epochs,
        setting.batch_size,
        setting.augment,
    )


def read_runs(path: Path, protocol: Protocol) -> dict[tuple[str, int], Run]:
    """The finished runs of a folder; raises UserError if they followed another protocol."""
    kept = read_kept(path, protocol._asdict())
    return {(entry["cell"], entry["seed"]): _run(entry) for entry in kept}


def write_runs(path: Path, protocol: Protocol, trained: list[Trained]) -> None:
    """Writes all finished runs, whole."""
    entries = [
        {
            "cell": each.cell.name,
            "seed": each.seed,
            "method": each.run.method,
            "step_ms": each.run.step_ms,
            "parameters": each.run.parameters,
            "curve": each.run.curve,
        }
        for each in trained
    ]
    write_kept(path, protocol._asdict(), entries)


def _run(entry: dict) -> Run:
    curve = [Epoch(*epoch) for epoch in entry["curve"]]
    return Run(entry["method"], entry["seed"], curve, entry["step_ms"], entry["parameters"], None)


def _datasets(data_dir: Path | None, seeds: int) -> Callable[[str, int, int, int], Dataset]:
    """Loads each dataset once for a seed: the cells come one after the other, each in all seeds."""
    return functools.lru_cache(maxsize=seeds)(
        lambda name, seed, rows, test_rows: load_data(data_dir, name, seed, rows, test_rows)
    )


def _trainers() -> Callable[[Cell, Protocol, Dataset], Trainer]:
    """One trainer for each cell and shape of data, whose compiled functions all seeds share."""
    made: dict[tuple[object, ...], Trainer] = {}

    def trainer_for(cell: Cell, setting: Protocol, data: Dataset) -> Trainer:
        key = (cell.name, data.X_train.shape, data.num_classes)
        if key not in made:
            made.clear()  # Cells come one after the other; their programs need not be kept.
            made[key] = make_trainer(recipe_of(cell, setting), settings_of(setting), data)
        return made[key]

    return trainer_for
