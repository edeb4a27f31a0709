"""What is finished, kept in the folder of the report, so that a call goes on where one stopped."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from experiments.errors import UserError
from experiments.reading import reading
from experiments.reports.files import write_whole

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
