"""Training every cell of a grid under every seed, and keeping what is finished."""

from dataclasses import asdict
from functools import partial
from typing import NamedTuple

from experiments.jobs import finished
from experiments.kept import RUNS, read_runs, write_runs
from experiments.papers.fingerprint import with_data
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context
from experiments.papers.training import Training
from experiments.training.fit import Run


class Trained(NamedTuple):
    """A cell under a seed."""

    cell: Cell
    seed: int
    run: Run


def train_grid(grid: Grid, protocol: Protocol, context: Context) -> list[Trained]:
    """All runs of a grid; those of an earlier call with the same protocol and data are kept."""
    kept, cells = context.out / RUNS, chosen(grid, protocol)
    followed = with_data(asdict(protocol), context.data_dir, [cell.dataset for cell in cells])
    runs = read_runs(kept, followed)
    tasks = [(cell, seed) for cell in cells for seed in range(protocol.seeds)]

    def trained() -> list[Trained]:
        places = [(cell, seed, runs.get((cell.name, seed))) for cell, seed in tasks]
        return [Trained(cell, seed, run) for cell, seed, run in places if run is not None]

    missing = [(cell, seed) for cell, seed in tasks if (cell.name, seed) not in runs]
    make_training = partial(Training, protocol, context.data_dir)
    for (cell, seed), run in finished(missing, make_training, context.jobs):
        runs[cell.name, seed] = run
        done = trained()
        write_runs(kept, followed, [(each.cell.name, each.run) for each in done])
        context.advance(len(done) / len(tasks), f"{cell.name}, seed {seed}")
    return trained()


def chosen(grid: Grid, protocol: Protocol) -> list[Cell]:
    """The cells that a protocol trains."""
    return [
        cell
        for cell in grid.cells
        if (not protocol.only_rows or cell.row in protocol.only_rows)
        and (not protocol.only_columns or cell.column in protocol.only_columns)
    ]
