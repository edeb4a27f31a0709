"""The report of a table of trainings: the table, the orderings one by one, the curves."""

import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from experiments.analysis.curves import draw_measure
from experiments.analysis.measures import MEASURES, is_fraction, words
from experiments.analysis.picture import new_figure
from experiments.augmentation.table import POLICIES
from experiments.methods.scale_noise import ScaleNoise, StepNoise
from experiments.papers.data import described, policies_note, published_policies
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context, Finding, Report
from experiments.papers.training import Trained, chosen, method_of, train_grid
from experiments.papers.verdict import NOTE, findings_of, measured
from experiments.training.fit import Run

#: The columns of results.csv; accuracies are fractions.
COLUMNS = (
    *("row", "column", "method", "seed", "epochs"),
    *(*MEASURES, "step_ms", "parameters", "reported"),
)

#: Further findings and figures of a table's runs.
View = Callable[[Sequence[Trained]], tuple[Sequence[Finding], Mapping[str, Figure]]]


def run_grid(grid: Grid, view: View | None, protocol: Protocol, context: Context) -> Report:
    """Trains a table and makes its report, with the findings and figures of ``view``."""
    cells = chosen(grid, protocol)
    names = described(context.data_dir, [cell.dataset for cell in cells])
    notes = [f"Trained and tested on: {names}."]
    if any(protocol.changed(**cell.changes).augment == POLICIES for cell in cells):
        protocol = protocol.changed(policies=published_policies(context.data_dir))
        notes.append(policies_note(protocol.policies))
    notes += noise_note(cells, protocol)
    trained = train_grid(grid, protocol, context)
    report = report_of(grid, trained, notes, protocol.last, names)
    findings, figures = view(trained) if view else ([], {})
    return report._replace(
        findings=[*findings, *report.findings], figures={**figures, **report.figures}
    )


def noise_note(cells: Sequence[Cell], protocol: Protocol) -> list[str]:
    """Lists the noise on scales by row, in a sentence, since the papers do not state all of it."""
    entries: dict[str, None] = {}
    for cell in cells:
        method = method_of(cell, protocol.changed(**cell.changes))
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
    runs = [(each.cell, run) for each in trained for run in each.runs]
    names = list(dict.fromkeys(name for _, run in runs for name in run.scores))
    rows = [_row(*each, names, last) for each in runs]
    rule = [NOTE] if grid.orderings else []
    averaged = [f"Measures are means over the last {last} epochs."] if last > 1 else []
    notes = (*notes, *averaged, *_diverged(trained), *rule)
    columns = (*COLUMNS, *names)
    return Report(findings_of(grid, trained, last), columns, rows, _figures(trained, data), notes)


def _diverged(trained: Sequence[Trained]) -> list[str]:
    """Lists the cells whose loss was not finite at the end, with their number of seeds."""
    cells = []
    for cell, runs in trained:
        lost = sum(not math.isfinite(run.curve[-1].train_loss) for run in runs)
        cells += [f"{cell.name} ({lost} of {len(runs)} seeds)"] * bool(lost)
    return [f"Training diverged: {'; '.join(cells)}."] if cells else []


def _row(cell: Cell, run: Run, scores: Sequence[str], last: int) -> tuple[object, ...]:
    numbers = [*(measured(run, name, last) for name in MEASURES), run.step_ms]
    reported = "" if cell.reported is None else cell.reported
    place = (cell.row, cell.column, cell.method, run.seed, run.curve[-1].epoch)
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
