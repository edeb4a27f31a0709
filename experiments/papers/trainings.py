"""Every cell of a grid under every seed: its runs in the store, the others trained."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from experiments.papers.fingerprint import data_of
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context
from experiments.papers.training import Training, spec_of
from experiments.runs.execute import Make, execute
from experiments.runs.spec import Spec
from experiments.runs.store import Store
from experiments.training.fit import Run


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
