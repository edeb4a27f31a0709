"""The table and the picture of a configuration: its methods beside each other."""

from collections.abc import Sequence
from typing import Any

from experiments.analysis.colours import bar_style
from experiments.analysis.comparison import spelled
from experiments.analysis.picture import new_figure, picture
from experiments.analysis.table import Table
from experiments.bench.compiled.rows import Row, ratios
from experiments.bench.compiled.spec import Spec
from experiments.models.registry import takes_tokens

_HEADER = ("HBM traffic", "ratio", "operations", "kernels", "collectives", "est. ms")


def title(spec: Spec) -> str:
    """Describes in one line what the rows of a configuration share."""
    if spec.what == "step":
        size = f"{spec.channels} channels"
        if spec.model in ("mlp", "patches") or takes_tokens(spec.model):
            size = f"depth {spec.depth}, width {spec.width}"
        what = f"training step of {spec.model}, {size}, {spec.rows} rows per device, {spec.dtype}"
    else:
        update = spec.what == "update"
        what = "optimizer's update" if update else "weights and their gradient's way back"
        what = f"{what}, kernels {spec.model}"
    how = [spec.entry] * (spec.entry != "jit") + [f"mesh {spec.mesh}"] * bool(spec.mesh)
    how += [f"kernels sharded along {spec.shard}"] * bool(spec.shard)
    how += ["nothing donated"] * (not spec.donate)
    return ", ".join([spec.target, what, *how])


def table_of(rows: Sequence[Row]) -> Table:
    """Returns a table with one line per method; bytes per parameter for parameters alone."""
    spec = rows[0].spec
    header = ("method" if spec.what == "step" else spec.what, *_HEADER)
    return header, [_line(row, rows) for row in rows]


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
        bytes_ratios = [(ratios(row, rows) or (0.0,))[0] for row in rows]
        _bars(traffic, rows, bytes_ratios, "{:.2f}x")
        step = rows[0].spec.what == "step"
        measured = [row.measurement for row in rows]
        numbers = [each.all_reduces if step else each.kernels for each in measured]
        _bars(counts, rows, numbers, "{:.0f}")
        base = rows[0].spec.base
        traffic.axvline(1, color="0.4", linewidth=1, linestyle=":")
        traffic.set_title(_folded(title(rows[0].spec)), fontsize=10, loc="left")
        traffic.set_xlabel(f"bytes to and from the device's memory, {base} = 1")
        collectives = "all-reduces: sums over all devices"
        counts.set_xlabel(collectives if step else "kernels, which run one after the other")
        counts.set_yticklabels([])
    return picture(figure)


def _bars(axes: Any, rows: Sequence[Row], values: Sequence[float], form: str) -> None:
    methods = [row.spec.method for row in rows]
    styles = [bar_style(name) for name in methods]
    colours, hatches = ([style[key] for style in styles] for key in ("color", "hatch"))
    names = [*map(spelled, methods)]
    bars = axes.barh(names, values, color=colours, hatch=hatches, edgecolor="white")
    axes.bar_label(bars, [form.format(value) for value in values], padding=3)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.15 * max(*values, 1))


def _folded(text: str, width: int = 60) -> str:
    cut = text.rfind(",", 0, width)
    return text if len(text) <= width or cut < 0 else f"{text[: cut + 1]}\n{text[cut + 2 :]}"
