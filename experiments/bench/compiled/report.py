"""The rows of compiled.csv, one per compilation, and their tables."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from experiments.analysis.csv import write_csv
from experiments.analysis.table import Table
from experiments.bench.compiled.measure import Costs
from experiments.bench.compiled.spec import BASES, Spec
from experiments.bench.compiled.targets import find_target
from experiments.models.registry import takes_tokens

#: A row of the file, by column.
Row = dict[str, str]

COLUMNS = (
    *("method", "target", "model", "dtype", "hbm_bytes", "hbm_ratio", "flops_ratio", "kernels"),
    *("collectives", "collective_bytes", "temp_bytes", "compile_s", "est_ms", "flops"),
    *("all_reduces", "parameters", "jax", "what", "shard", "channels", "depth", "width"),
    "rows_per_device",
)


def row_of(spec: Spec, costs: Costs) -> Row:
    """Returns the row of a compilation, without what is calculated from it."""
    return {name: str(value) for name, value in {**asdict(spec), **costs}.items()}


def est_ms(row: Row) -> float:
    """Least milliseconds of a call, by the roofline of the card, without collectives."""
    target = find_target(row["target"])
    peak = target.bfloat16 if row["dtype"] == "bfloat16" else target.float32
    return 1e3 * max(float(row["hbm_bytes"]) / target.bandwidth, float(row["flops"]) / peak)


def spec_of(row: Row) -> Spec:
    """Returns the compilation of a row."""
    values: dict[str, Any] = {
        field.name: int(row[field.name]) if field.type is int else row[field.name]
        for field in fields(Spec)
    }
    return Spec(**values)


def ratios(row: Row, rows: Iterable[Row]) -> list[float]:
    """Returns bytes and operations over those of the table's baseline; none without one."""
    baseline = replace(spec_of(row), method=BASES[row["what"]])
    return [
        float(row[name]) / max(float(other[name]), 1)
        for other in rows
        if spec_of(other) == baseline
        for name in ("hbm_bytes", "flops")
    ]


def tables(rows: Iterable[Row]) -> dict[Spec, list[Row]]:
    """Groups the rows by their compilations without the method."""
    groups: dict[Spec, list[Row]] = {}
    for row in rows:
        groups.setdefault(replace(spec_of(row), method=""), []).append(row)
    return groups


def read_rows(path: Path) -> list[Row]:
    """Reads the rows of a file; none if the file does not exist."""
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def write_row(path: Path, new: Row) -> None:
    """Adds a row to those of the file, in the place of an earlier one of the same compilation."""
    rows = list({spec_of(row): row for row in (*read_rows(path), new)}.values())
    for row in rows:
        shown = [f"{ratio:.4f}" for ratio in ratios(row, rows)] or ["", ""]
        row |= zip(("hbm_ratio", "flops_ratio"), shown, strict=True)
        row["est_ms"] = f"{est_ms(row):.4g}"
    write_csv(path, COLUMNS, ([row[name] for name in COLUMNS] for row in rows))


def title(row: Row) -> str:
    """Describes in one line what the rows of a table share."""
    if row["what"] != "step":
        update = row["what"] == "update"
        what = "optimizer's update" if update else "weights and their gradient's way back"
        shard = f", kernels sharded along {row['shard']}" if row["shard"] else ""
        return f"{row['target']}, {what}, kernels {row['model']}{shard}"
    size = f"{row['channels']} channels"
    if row["model"] in ("mlp", "patches") or takes_tokens(row["model"]):
        size = f"depth {row['depth']}, width {row['width']}"
    rows = f"{row['rows_per_device']} rows per device, {row['dtype']}"
    return f"{row['target']}, training step of {row['model']}, {size}, {rows}"


def table_of(rows: Sequence[Row]) -> Table:
    """Returns a table with one line per method; bytes per parameter for parameters alone."""
    what = rows[0]["what"]
    header = ("method" if what == "step" else what, "HBM traffic", "ratio", "operations")
    return (*header, "kernels", "collectives", "est. ms"), [_line(row, rows) for row in rows]


def _line(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    moved = float(row["hbm_bytes"])
    traffic = f"{moved / 1e9:.3g} GB"
    if row["what"] != "step":
        traffic = f"{moved / float(row['parameters']):.2f} B/par."
    over = [f"{ratio:.3f}" for ratio in ratios(row, rows)] or ["", ""]
    sent = f"{row['collectives']} ({float(row['collective_bytes']) / 1e6:.3g} MB)"
    counts = row["kernels"], "0" if row["collectives"] == "0" else sent
    return (row["method"], traffic, *over, *counts, f"{est_ms(row):.3g}")
