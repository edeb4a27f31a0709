"""Items that are tables of trainings: their presets, their run, and their report."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.analysis.curves import draw_measure
from experiments.analysis.measures import MEASURES, is_fraction, words
from experiments.analysis.picture import new_figure
from experiments.augmentation.table import POLICIES
from experiments.methods.scale_noise import ScaleNoise, StepNoise
from experiments.methods.statistics import WORDS as STATISTICS
from experiments.methods.table import METHODS
from experiments.papers.data import data_note, described, policies_note, published_policies
from experiments.papers.grid import Cell, Changes, Column, Grid, Protocol, Row, cells_of
from experiments.papers.item import Context, Finding, Item, Preset, Report, Rows
from experiments.papers.training import Trained, method_of, train_grid
from experiments.papers.verdict import NOTE, findings_of
from experiments.training.run import Epoch, Run

#: The fields that both reduced presets of image networks change, then those of smoke, and of cpu.
SMALL: Changes = {"side": 0, "last": 1, "rate_decay": 0.0, "held_out": 0, "batch_size": 64}
SMOKE: Changes = {
    **SMALL,
    **{"epochs": 1, "seeds": 1, "channels": 4, "rate_schedule": ()},
    **{"train_rows": 256, "test_rows": 64},
}
CPU: Changes = {
    **SMALL,
    **{"epochs": 10, "train_rows": 2000, "test_rows": 2000, "seeds": 3, "channels": 16},
}

SMOKE_LABEL = (
    "one epoch of a few hundred enlarged digits, narrow networks, one seed: it shows that the item "
    "runs, and nothing else"
)

#: The columns of results.csv; accuracies are fractions.
COLUMNS = (
    *("row", "column", "method", "seed", "epochs"),
    *(*MEASURES, "step_ms", "parameters", "reported"),
)

#: Further findings and figures of a table's runs.
View = Callable[[Sequence[Trained]], tuple[Sequence[Finding], Mapping[str, Figure]]]


def table(
    name: str,
    title: str,
    reported: str,
    *,
    rows: Mapping[str, Row],
    columns: Mapping[str, Column],
    full: Protocol,
    full_cost: str,
    cpu: Changes,
    cpu_cost: str,
    smoke: Changes,
    view: View | None = None,
    **fields: Any,
) -> Item:
    """Makes the item of a table of trainings.

    Args:
        name: PAPER/ITEM.
        title: its contents, in a line.
        reported: the paper's report, in a line.
        rows: the rows by name.
        columns: the columns by name; "" for the only one.
        full: the paper's protocol.
        full_cost: its cost in words.
        cpu: the fields that the preset cpu changes besides `CPU`. Reduced presets train the first
            column alone, unless the fields or the paper's protocol name others.
        cpu_cost: its cost in words.
        smoke: the fields that the preset smoke changes besides `SMOKE`.
        view: makes further findings and figures of the runs.
        **fields: further fields of the `Grid`, such as its ``orderings``.
    """
    first = tuple(columns)[:1]
    grid = Grid(cells_of(rows, columns), **fields)
    one: Changes = {} if full.only_columns or len(columns) == 1 else {"only_columns": first}
    reduced = full.changed(**{**CPU, **one, **cpu})
    smallest = full.changed(**{**SMOKE, **one, **smoke})
    return Item(
        name,
        title,
        reported,
        partial(run_grid, grid, view),
        smoke=Preset(smallest, "30 s on 2 CPU cores", SMOKE_LABEL),
        cpu=Preset(reduced, cpu_cost, differences(full, reduced)),
        full=Preset(full, full_cost),
        grid=grid,
    )


def differences(full: Protocol, reduced: Protocol) -> str:
    """Lists every field in which a protocol differs from the paper's, with its value."""
    ours = asdict(reduced)
    return ", ".join(_shown(n, ours[n]) for n, paper in asdict(full).items() if ours[n] != paper)


def _shown(name: str, value: Any) -> str:
    if name in ("rate_schedule", "rate_decay") and not value:
        return "half a cosine for the learning rate"
    return f"{name.replace('_', ' ')} {'; '.join(value) if isinstance(value, tuple) else value}"


def run_grid(grid: Grid, view: View | None, protocol: Protocol, context: Context) -> Report:
    """Trains a table and makes its report, with the findings and figures of ``view``."""
    cells = grid.chosen(protocol)
    datasets = [cell.dataset for cell in cells]
    names, notes = described(context.data_dir, datasets), [data_note(context.data_dir, datasets)]
    if any(cell.changes.get("augment", protocol.augment) == POLICIES for cell in cells):
        protocol = protocol.changed(policies=published_policies(context.data_dir))
        notes.append(policies_note(protocol.policies))
    notes += noise_note(cells, protocol)
    rows = dict.fromkeys(c.row for c in cells if METHODS[c.method].has_statistics)
    notes += [f"{STATISTICS} This holds for {'; '.join(rows)}."] if rows else []
    trained = train_grid(cells, protocol, context)
    report = report_of(grid, trained, notes, protocol.last, names)
    findings, figures = view(trained) if view else ([], {})
    return report._replace(
        findings=[*findings, *report.findings], figures={**figures, **report.figures}
    )


def noise_note(cells: Sequence[Cell], protocol: Protocol) -> list[str]:
    """Lists the noise on scales by row, in a sentence, since the papers do not state all of it."""
    entries: dict[str, None] = {}
    for cell in cells:
        method = method_of(cell.method, protocol.changed(**cell.changes))
        if noise := method.get(ScaleNoise):
            where = "last layer, l / L of it in layer l" if noise.grows else "each layer"
            entries[f"{cell.row} {noise.noise:g} ({where}, one draw per sample)"] = None
        if drawn := method.get(StepNoise):
            entries[f"{cell.row} {drawn.noise:g} (each layer, one draw per step)"] = None
    if not entries:
        return []
    return [f"Noise, its sigma (ours where the paper states none): {'; '.join(entries)}."]


def report_of(
    grid: Grid, trained: Sequence[Trained], notes: Sequence[str] = (), last: int = 1, data: str = ""
) -> Report:
    """Makes the report of a grid's runs.

    Args:
        grid: the table.
        trained: its runs.
        notes: sentences for the report.
        last: the epochs at the end over which measures are averaged.
        data: the name of the data, for the picture.
    """
    ended = [each._replace(runs=[averaged(run, last) for run in each.runs]) for each in trained]
    runs = [(each.cell, run) for each in ended for run in each.runs]
    names = list(dict.fromkeys(name for _, run in runs for name in run.scores))
    mean = [f"Measures are means over the last {last} epochs."] if last > 1 else []
    rule = [NOTE] if grid.orderings else []
    rows, curves = [_row(*each, names) for each in runs], curves_of(trained)
    notes, columns = (*notes, *mean, *_diverged(trained), *rule), (*COLUMNS, *names)
    findings, figures = findings_of(grid, ended), _figures(trained, data)
    return Report(findings, columns, rows, figures, notes, curves)


def averaged(run: Run, last: int) -> Run:
    """Returns a run whose last epoch has the means over the ``last`` epochs."""
    if last == 1:
        return run
    means = np.mean([entry[1:] for entry in run.curve[-last:]], 0).tolist()
    return run._replace(curve=[*run.curve[:-1], Epoch(run.curve[-1].epoch, *means)])


def curves_of(trained: Sequence[Trained]) -> Rows:
    """Returns the header and rows of curves.csv: a row per epoch, seed and cell."""
    rows = [
        (cell.row, cell.column, run.seed, entry.epoch, *(f"{x:.6g}" for x in entry[1:]))
        for cell, runs in trained
        for run in runs
        for entry in run.curve
    ]
    return ("row", "column", "seed", *Epoch._fields), rows


def _diverged(trained: Sequence[Trained]) -> list[str]:
    """Lists the cells whose loss was not finite at the end, with their number of seeds."""
    cells = []
    for cell, runs in trained:
        lost = sum(not math.isfinite(run.curve[-1].train_loss) for run in runs)
        cells += [f"{cell.name} ({lost} of {len(runs)} seeds)"] * bool(lost)
    return [f"Training diverged: {'; '.join(cells)}."] if cells else []


def _row(cell: Cell, run: Run, scores: Sequence[str]) -> tuple[object, ...]:
    last = run.curve[-1]
    numbers = (*(getattr(last, name) for name in MEASURES), run.step_ms)
    reported = "" if cell.reported is None else cell.reported
    place = (cell.row, cell.column, cell.method, run.seed, last.epoch)
    shown = (f"{run.scores[name]:.6g}" for name in scores)
    return (*place, *(f"{number:.6g}" for number in numbers), run.parameters, reported, *shown)


#: The measures of a column's panels.
PANELS = ("train_loss", "test_loss", "train_accuracy", "test_accuracy")


def _figures(trained: Sequence[Trained], data: str) -> dict[str, Figure]:
    """Draws losses and accuracies of every row, one row of panels per column."""
    columns = list(dict.fromkeys(t.cell.column for t in trained))
    figure = new_figure(len(PANELS), len(columns), width=4.4, height=3.8)
    for place, column in enumerate(columns):
        axes = figure.axes[len(PANELS) * place : len(PANELS) * (place + 1)]
        rows = {each.cell.row: each.runs for each in trained if each.cell.column == column}
        for ax, measure in zip(axes, PANELS, strict=True):
            draw_measure(ax, rows, measure)
            label = f"{words(measure)} ({'%' if is_fraction(measure) else 'nats'})"
            ax.set(xlabel="epoch", ylabel=label, title=column)
            if measure.endswith("loss"):
                ax.set_yscale("log")
        # Beside the panels, because ten names would cover the lines.
        axes[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8, frameon=False)
    if data:  # The panels have the names of the paper's columns.
        figure.suptitle(f"trained and tested on {data}", fontsize="medium", parse_math=False)
    return {"curves": figure}
