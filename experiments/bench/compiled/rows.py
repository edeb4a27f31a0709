"""The rows of compiled.csv, one a compilation; compiled again, it takes its old row's place."""

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.targets import find_target
from experiments.bench.compiled.worker import Found
from experiments.reports.csv import write_csv


@dataclass(frozen=True)
class Row:
    """A compilation and what was found.

    Attributes:
        spec: what was compiled.
        found: what the program does.
    """

    spec: Spec
    found: Found

    @property
    def est_ms(self) -> float:
        """The least time of a call, by the roofline of the card; collectives are not in it."""
        card, found = find_target(self.spec.target).card, self.found
        return 1e3 * card.seconds(found.hbm_bytes, found.flops, self.spec.dtype)


#: The first of the columns; the others that a `Spec` and a `Found` have follow.
_FIRST = (
    *("method", "target", "model", "dtype", "entry", "hbm_bytes", "hbm_ratio", "flops_ratio"),
    *("kernels", "collectives", "collective_bytes", "temp_bytes", "compile_s", "est_ms"),
)
_ALL = (*(field.name for kind in (Found, Spec) for field in fields(kind)),)
COLUMNS = (*_FIRST, *(name for name in _ALL if name not in _FIRST))


def ratios(row: Row, rows: Iterable[Row]) -> tuple[float, float] | None:
    """Bytes and operations over those of the same configuration's baseline, if it is there."""
    base = replace(row.spec, method=row.spec.base)
    theirs = next((other.found for other in rows if other.spec == base), None)
    if theirs is None:
        return None
    return row.found.hbm_bytes / theirs.hbm_bytes, row.found.flops / max(theirs.flops, 1)


def merged(rows: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """All rows in their order; the new ones in the place of those of the same compilation."""
    return list({row.spec: row for row in (*rows, *new)}.values())


def write_rows(path: Path, rows: list[Row]) -> None:
    """The file, written whole."""
    write_csv(path, COLUMNS, ([_text(row, rows)[name] for name in COLUMNS] for row in rows))


def _text(row: Row, rows: list[Row]) -> dict[str, Any]:
    found = ratios(row, rows)
    shown = (f"{ratio:.4f}" for ratio in found) if found else ("", "")
    calculated = dict(zip(("hbm_ratio", "flops_ratio"), shown, strict=True))
    return {**asdict(row.spec), **asdict(row.found), **calculated, "est_ms": f"{row.est_ms:.4g}"}


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; none of one that is not there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Row(_record(Spec, line), _record(Found, line)) for line in csv.DictReader(file)]


def _record(kind: Any, line: dict[str, str]) -> Any:
    # Of text with a few values alone, the type is no constructor.
    makers: dict[Any, Any] = {int: int, float: float, bool: lambda text: text == "True"}
    # A column that is not there yet has its default.
    there = [f for f in fields(kind) if f.name in line]
    return kind(**{f.name: makers.get(f.type, str)(line[f.name]) for f in there})
