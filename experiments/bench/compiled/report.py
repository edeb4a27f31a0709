"""The rows of compiled.csv, one per compilation, with their tables and picture."""

import csv
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from experiments.analysis.colours import bar_style
from experiments.analysis.comparison import spelled
from experiments.analysis.csv import write_csv
from experiments.analysis.picture import new_figure, picture
from experiments.analysis.table import Table
from experiments.bench.compiled.measure import Measurement
from experiments.bench.compiled.spec import Spec
from experiments.bench.compiled.targets import find_target
from experiments.models.registry import takes_tokens


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
    *("method", "target", "model", "dtype", "hbm_bytes", "hbm_ratio", "flops_ratio", "kernels"),
    *("collectives", "collective_bytes", "temp_bytes", "compile_s", "est_ms"),
)
COLUMNS = tuple(
    dict.fromkeys([*_FIRST, *(f.name for kind in (Measurement, Spec) for f in fields(kind))])
)


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


def configurations(rows: Iterable[Row]) -> dict[Spec, list[Row]]:
    """Groups the rows by what they have in common but for the method."""
    groups: dict[Spec, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.spec.configuration, []).append(row)
    return groups


def write_rows(path: Path, rows: list[Row]) -> None:
    """Writes all rows to the file."""
    write_csv(path, COLUMNS, ([_text(row, rows)[name] for name in COLUMNS] for row in rows))


def _text(row: Row, rows: list[Row]) -> dict[str, Any]:
    shown = [f"{ratio:.4f}" for ratio in ratios(row, rows) or ()] or ["", ""]
    calculated = {"hbm_ratio": shown[0], "flops_ratio": shown[1], "est_ms": f"{row.est_ms:.4g}"}
    return {**asdict(row.spec), **asdict(row.measurement), **calculated}


def read_rows(path: Path) -> list[Row]:
    """Reads the rows of a file; none if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [Row(_record(Spec, line), _record(Measurement, line)) for line in lines]


def _record(kind: Any, line: dict[str, str]) -> Any:
    makers: dict[Any, Any] = {int: int, float: float}  # Other types, such as literals, are text.
    return kind(**{f.name: makers.get(f.type, str)(line[f.name]) for f in fields(kind)})


def title(spec: Spec) -> str:
    """Describes in one line what the rows of a configuration share."""
    if spec.what != "step":
        update = spec.what == "update"
        what = "optimizer's update" if update else "weights and their gradient's way back"
        shard = f", kernels sharded along {spec.shard}" if spec.shard else ""
        return f"{spec.target}, {what}, kernels {spec.model}{shard}"
    size = f"{spec.channels} channels"
    if spec.model in ("mlp", "patches") or takes_tokens(spec.model):
        size = f"depth {spec.depth}, width {spec.width}"
    rows = f"{spec.rows} rows per device, {spec.dtype}"
    return f"{spec.target}, training step of {spec.model}, {size}, {rows}"


def table_of(rows: Sequence[Row]) -> Table:
    """Returns a table with one line per method; bytes per parameter for parameters alone."""
    what = rows[0].spec.what
    header = ("method" if what == "step" else what, "HBM traffic", "ratio", "operations")
    return (*header, "kernels", "collectives", "est. ms"), [_line(row, rows) for row in rows]


def _line(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    measured = row.measurement
    traffic = f"{measured.hbm_bytes / 1e9:.3g} GB"
    if row.spec.what != "step":
        traffic = f"{measured.hbm_bytes / measured.parameters:.2f} B/par."
    over = [f"{ratio:.3f}" for ratio in ratios(row, rows) or ()] or ["", ""]
    sent = f"{measured.collectives} ({measured.collective_bytes / 1e6:.3g} MB)"
    counts = (str(measured.kernels), sent if measured.collectives else "0")
    return (row.spec.method, traffic, *over, *counts, f"{row.est_ms:.3g}")


def picture_of(groups: Sequence[Sequence[Row]]) -> bytes:
    """Draws two panels per configuration: bars of traffic, and of all-reduces (or kernels)."""
    longest = max(map(len, groups))
    figure = new_figure(2, len(groups), width=6.0, height=1.4 + 0.36 * longest)
    for traffic, counts, rows in zip(figure.axes[::2], figure.axes[1::2], groups, strict=True):
        step = rows[0].spec.what == "step"
        _bars(traffic, rows, [(ratios(row, rows) or (0.0,))[0] for row in rows], "{:.2f}x")
        measured = [row.measurement for row in rows]
        _bars(counts, rows, [m.all_reduces if step else m.kernels for m in measured], "{:.0f}")
        traffic.axvline(1, color="0.4", linewidth=1, linestyle=":")
        traffic.set_title(textwrap.fill(title(rows[0].spec), 60), fontsize=10, loc="left")
        traffic.set_xlabel(f"bytes to and from the device's memory, {rows[0].spec.base} = 1")
        collectives = "all-reduces: sums over all devices"
        counts.set_xlabel(collectives if step else "kernels, which run one after the other")
        counts.set_yticklabels([])
    return picture(figure)


def _bars(axes: Any, rows: Sequence[Row], values: Sequence[float], form: str) -> None:
    names = [row.spec.method for row in rows]
    styles = {key: [bar_style(name)[key] for name in names] for key in ("color", "hatch")}
    bars = axes.barh([*map(spelled, names)], values, edgecolor="white", **styles)
    axes.bar_label(bars, [form.format(value) for value in values], padding=3)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.15 * max(*values, 1))
