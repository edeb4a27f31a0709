"""The rows of compiled.csv, one per compilation; a repeated compilation replaces its row."""

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from experiments.analysis.csv import write_csv
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.targets import find_target
from experiments.bench.compiled.worker import Measurement


@dataclass(frozen=True)
class Row:
    """A compilation and its measurement.

    Attributes:
        spec: the compilation.
        measurement: the costs of the program.
    """

    spec: Spec
    measurement: Measurement

    @property
    def est_ms(self) -> float:
        """Least milliseconds of a call, by the roofline of the card, without collectives."""
        card, measured = find_target(self.spec.target).card, self.measurement
        return 1e3 * card.seconds(measured.hbm_bytes, measured.flops, self.spec.dtype)


#: The first columns; the other fields of `Measurement` and `Spec` follow.
_FIRST = (
    *("method", "target", "model", "dtype", "entry", "hbm_bytes", "hbm_ratio", "flops_ratio"),
    *("kernels", "collectives", "collective_bytes", "temp_bytes", "compile_s", "est_ms"),
)
_ALL = (*(field.name for kind in (Measurement, Spec) for field in fields(kind)),)
COLUMNS = (*_FIRST, *(name for name in _ALL if name not in _FIRST))


def ratios(row: Row, rows: Iterable[Row]) -> tuple[float, float] | None:
    """Returns bytes and operations over those of the configuration's baseline; None without one."""
    base = replace(row.spec, method=row.spec.base)
    baseline = next((other.measurement for other in rows if other.spec == base), None)
    if baseline is None:
        return None
    measured = row.measurement
    return measured.hbm_bytes / baseline.hbm_bytes, measured.flops / max(baseline.flops, 1)


def merged(rows: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Returns all rows in their order; new ones replace those of the same compilation."""
    return list({row.spec: row for row in (*rows, *new)}.values())


def write_rows(path: Path, rows: list[Row]) -> None:
    """Writes all rows to the file."""
    write_csv(path, COLUMNS, ([_text(row, rows)[name] for name in COLUMNS] for row in rows))


def _text(row: Row, rows: list[Row]) -> dict[str, Any]:
    shown = [f"{ratio:.4f}" for ratio in ratios(row, rows) or ()] or ["", ""]
    calculated = dict(zip(("hbm_ratio", "flops_ratio"), shown, strict=True))
    calculated["est_ms"] = f"{row.est_ms:.4g}"
    return {**asdict(row.spec), **asdict(row.measurement), **calculated}


def read_rows(path: Path) -> list[Row]:
    """Reads the rows of a file; none if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [Row(_record(Spec, line), _record(Measurement, line)) for line in lines]


def _record(kind: Any, line: dict[str, str]) -> Any:
    # Other types, such as literals, are text.
    makers: dict[Any, Any] = {int: int, float: float, bool: lambda text: text == "True"}
    # A missing column has its default.
    present = [f for f in fields(kind) if f.name in line]
    return kind(**{f.name: makers.get(f.type, str)(line[f.name]) for f in present})
