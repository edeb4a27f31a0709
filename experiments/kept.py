"""What is finished, kept in the folder of the report, so that a call goes on where one stopped."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from experiments.errors import UserError
from experiments.reading import reading, record_of
from experiments.reports.files import write_whole
from experiments.training.fit import Run
from experiments.training.history import Epoch

#: Finished runs, in the folder of the report.
RUNS = "runs.json"

WAY_OUT = (
    "wanted what an earlier call wrote: remove it, and its runs are trained again, or give another "
    "--out"
)

Entry = TypeVar("Entry")


def read_kept(
    path: Path, protocol: Mapping[str, Any], entry_of: Callable[[dict[str, Any]], Entry]
) -> list[Entry]:
    """The finished runs of a file.

    Args:
        path: the file; if there is none, nothing is finished.
        protocol: what the runs must have followed.
        entry_of: a run from what JSON gave; it may raise whatever it likes.

    Raises:
        UserError: if the file is damaged, or the runs followed another protocol.
    """
    if not path.exists():
        return []
    mine = json.loads(json.dumps(protocol))
    with reading(path, WAY_OUT):
        stored = json.loads(path.read_text(encoding="utf-8"))
        theirs, runs = dict(stored["protocol"]), [*stored["runs"]]
    # A setting that came later is the one that was left out.
    names = [name for name in {**mine, **theirs} if not _agree(theirs.get(name), mine.get(name))]
    if names:
        raise UserError(
            f"{path} holds runs of another protocol ({', '.join(names)} differ); give another "
            "--out, or remove it."
        )
    with reading(path, WAY_OUT):
        return [entry_of(run) for run in runs]


def _agree(theirs: Any, mine: Any) -> bool:
    """Whether two settings are equal; of named ones those that both have: a folder grows."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        return all(theirs[name] == mine[name] for name in theirs.keys() & mine.keys())
    return bool(theirs == mine)


def write_kept(path: Path, protocol: Mapping[str, Any], runs: Iterable[Mapping[str, Any]]) -> None:
    """Writes all finished runs, whole."""
    write_whole(path, json.dumps({"protocol": protocol, "runs": list(runs)}))


def read_runs(path: Path, protocol: Mapping[str, Any]) -> dict[tuple[str, int], Run]:
    """The finished runs of a file, by name and seed, without their final states.

    Raises:
        UserError: as `read_kept`.
    """
    return {(name, run.seed): run for name, run in read_kept(path, protocol, _run_of)}


def write_runs(path: Path, protocol: Mapping[str, Any], runs: Iterable[tuple[str, Run]]) -> None:
    """Writes all finished runs by their names, whole."""
    entries = [
        {"cell": name}
        | {each: getattr(run, each) for each in _Header._fields if each != "cell"}
        | {"changes": dict(run.changes), "scores": dict(run.scores), "curve": run.curve}
        for name, run in runs
    ]
    write_kept(path, protocol, entries)


def _run_of(stored: Any) -> tuple[str, Run]:
    """A run's name, and the run, of what JSON gave."""
    # Runs that were kept before they said their outcome, settings of their own and scores.
    stored = {"outcome": "", "changes": {}, "scores": {}, **stored}
    header = record_of(_Header, {name: stored[name] for name in _Header._fields})
    curve = [Epoch.of_list(epoch) for epoch in stored["curve"]]
    if not curve:
        raise ValueError("a run in it has no epoch")
    costs = header.step_ms, header.parameters
    changes = tuple((name, 0 + value) for name, value in stored["changes"].items())
    scores = {name: 0.0 + score for name, score in stored["scores"].items()}
    run = Run(header.method, header.seed, curve, *costs, None, header.outcome, changes, scores)
    return header.cell, run


class _Header(NamedTuple):
    """A finished run but for its curve."""

    cell: str
    seed: int
    method: str
    step_ms: float
    parameters: int
    outcome: str
