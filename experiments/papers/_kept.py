"""What is finished, kept in the folder of the report, so that a call goes on where one stopped."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments._errors import UserError
from experiments.reports import write_whole

#: Finished runs, in the folder of the report.
RUNS = "runs.json"


def read_kept(path: Path, protocol: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The finished runs of a file; raises UserError if they followed another protocol."""
    if not path.exists():
        return []
    stored = json.loads(path.read_text())
    mine = json.loads(json.dumps(protocol))
    if stored["protocol"] != mine:
        differing = [name for name in mine if stored["protocol"].get(name) != mine[name]]
        raise UserError(
            f"{path} holds runs of another protocol ({', '.join(differing)} differ); give another "
            "--out, or remove it."
        )
    return stored["runs"]


def write_kept(path: Path, protocol: Mapping[str, Any], runs: Iterable[Mapping[str, Any]]) -> None:
    """Writes all finished runs, whole."""
    write_whole(path, json.dumps({"protocol": protocol, "runs": list(runs)}))
