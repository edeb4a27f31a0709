"""Every cell of a grid under every seed: its runs in the store, the others trained."""

import sys
from functools import partial
from typing import NamedTuple

from experiments.papers.fingerprint import data_of
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context
from experiments.papers.training import Training, spec_of
from experiments.runs.execute import execute
from experiments.runs.store import Store
from experiments.training.fit import Run


class Trained(NamedTuple):
    """A cell under a seed."""

    cell: Cell
    seed: int
    run: Run


def train_grid(grid: Grid, protocol: Protocol, context: Context) -> list[Trained]:
    """All runs of a grid; what is in the store of the folder is not trained again."""
    cells, store = chosen(grid, protocol), Store(context.out)
    data = data_of(context.data_dir, [cell.dataset for cell in cells])
    places = {
        (cell.name, seed): spec_of(cell, seed, protocol, (cell.dataset, data[cell.dataset]))
        for cell in cells
        for seed in range(protocol.seeds)
    }
    specs = list(dict.fromkeys(places.values()))
    names = {spec: f"{name}, seed {seed}" for (name, seed), spec in places.items()}
    runs = {spec: run for spec in specs if (run := store.find(spec)) is not None}
    missing = [spec for spec in specs if spec not in runs]
    make = partial(Training, protocol, context.data_dir)
    for spec, run in execute(missing, make, store, context.jobs, partial(print, file=sys.stderr)):
        runs[spec] = run
        context.advance(len(runs) / len(specs), names[spec])
    return [
        Trained(cell, seed, runs[places[cell.name, seed]])
        for cell in cells
        for seed in range(protocol.seeds)
    ]


def chosen(grid: Grid, protocol: Protocol) -> list[Cell]:
    """The cells that a protocol trains."""
    return [
        cell
        for cell in grid.cells
        if (not protocol.only_rows or cell.row in protocol.only_rows)
        and (not protocol.only_columns or cell.column in protocol.only_columns)
    ]
