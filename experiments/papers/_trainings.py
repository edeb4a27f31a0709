"""Training every cell of a grid under every seed, and keeping what is finished."""

from pathlib import Path
from typing import Any, NamedTuple

from experiments._reading import record_of
from experiments.papers._grid import Cell, Grid, Protocol
from experiments.papers._item import Context
from experiments.papers._jobs import finished
from experiments.papers._kept import RUNS, read_kept, write_kept
from experiments.training import Epoch, Run


class Trained(NamedTuple):
    """A cell under a seed."""

    cell: Cell
    seed: int
    run: Run


def train_grid(grid: Grid, protocol: Protocol, context: Context) -> list[Trained]:
    """All runs of a grid; those that an earlier call with the same protocol finished are kept."""
    runs = read_runs(context.out / RUNS, protocol)
    tasks = [(cell, seed) for cell in chosen(grid, protocol) for seed in range(protocol.seeds)]

    def trained() -> list[Trained]:
        places = [(cell, seed, runs.get((cell.name, seed))) for cell, seed in tasks]
        return [Trained(cell, seed, run) for cell, seed, run in places if run is not None]

    missing = [(cell, seed) for cell, seed in tasks if (cell.name, seed) not in runs]
    for (cell, seed), run in finished(missing, protocol, context.data_dir, context.jobs):
        runs[cell.name, seed] = run
        done = trained()
        write_runs(context.out / RUNS, protocol, done)
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


def read_runs(path: Path, protocol: Protocol) -> dict[tuple[str, int], Run]:
    """The finished runs of a folder; raises UserError if they followed another protocol."""
    kept = read_kept(path, protocol._asdict(), _entry_of)
    return {(name, run.seed): run for name, run in kept}


def write_runs(path: Path, protocol: Protocol, trained: list[Trained]) -> None:
    """Writes all finished runs, whole."""
    entries = [
        {
            "cell": each.cell.name,
            "seed": each.seed,
            "method": each.run.method,
            "step_ms": each.run.step_ms,
            "parameters": each.run.parameters,
            "outcome": each.run.outcome,
            "curve": each.run.curve,
        }
        for each in trained
    ]
    write_kept(path, protocol._asdict(), entries)


def _entry_of(stored: dict[str, Any]) -> tuple[str, Run]:
    """A cell's name and its run."""
    # Runs that were kept before they said their outcome.
    stored = {"outcome": "", **stored}
    header = record_of(_Header, {name: stored[name] for name in _Header._fields})
    curve = [
        record_of(Epoch, dict(zip(Epoch._fields, epoch, strict=True))) for epoch in stored["curve"]
    ]
    if not curve:
        raise ValueError("a run in it has no epoch")
    costs = header.step_ms, header.parameters
    return header.cell, Run(header.method, header.seed, curve, *costs, None, header.outcome)


class _Header(NamedTuple):
    """A finished run but for its curve."""

    cell: str
    seed: int
    method: str
    step_ms: float
    parameters: int
    outcome: str
