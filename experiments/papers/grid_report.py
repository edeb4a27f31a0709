"""From finished trainings to a report: the table, the orderings one by one, the curves."""

import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from experiments.methods.scale_noise import ScaleNoise, StepNoise
from experiments.names import POLICIES
from experiments.papers.data import described, published_policies, said_of_policies
from experiments.papers.grid import Cell, Grid, Protocol
from experiments.papers.item import Context, Finding, Report
from experiments.papers.training import Trained, chosen, method_of, train_grid
from experiments.papers.verdict import NOTE, findings_of, measured
from experiments.reports.curves import draw_measure
from experiments.reports.picture import new_figure
from experiments.runs.measures import MEASURES, is_fraction, words
from experiments.training.fit import Run

#: The columns of results.csv; accuracies are fractions.
COLUMNS = (
    *("row", "column", "method", "seed", "epochs"),
    *(*MEASURES, "step_ms", "parameters", "reported"),
)

#: What is claimed and drawn of a table's runs, besides what every table shows.
View = Callable[[Sequence[Trained]], tuple[Sequence[Finding], Mapping[str, Figure]]]


def run_grid(grid: Grid, view: View | None, protocol: Protocol, context: Context) -> Report:
    """The report of a table of trainings, and what ``view`` makes of them besides."""
    cells = chosen(grid, protocol)
    names = described(context.data_dir, [cell.dataset for cell in cells])
    said = [f"Trained and tested on: {names}."]
    if any(protocol.changed(**cell.changes).augment == POLICIES for cell in cells):
        protocol = protocol.changed(policies=published_policies(context.data_dir))
        said.append(said_of_policies(protocol.policies))
    said += said_of_noise(cells, protocol)
    trained = train_grid(grid, protocol, context)
    report = report_of(grid, trained, said, protocol.last, names)
    findings, figures = view(trained) if view else ([], {})
    return report._replace(
        findings=[*findings, *report.findings], figures={**figures, **report.figures}
    )


def said_of_noise(cells: Sequence[Cell], protocol: Protocol) -> list[str]:
    """The noise on scales of each row that has some, in a sentence: the papers do not state all."""
    said: dict[str, None] = {}
    for cell in cells:
        method = method_of(cell, protocol.changed(**cell.changes))
        if noise := method.get(ScaleNoise):
            where = "last layer, l / L of it in layer l" if noise.grows else "each layer"
            said[f"{cell.row} {noise.noise:g} ({where}, a draw a sample)"] = None
        if drawn := method.get(StepNoise):
            said[f"{cell.row} {drawn.noise:g} (each layer, a draw a step)"] = None
    if not said:
        return []
    return [f"Noise, its sigma (ours where the paper states none): {'; '.join(said)}."]


def report_of(
    grid: Grid, trained: Sequence[Trained], notes: Sequence[str] = (), last: int = 1, data: str = ""
) -> Report:
    """The report of a grid's runs.

    Args:
        grid: the table.
        trained: its runs.
        notes: sentences for the report.
        last: the epochs at the end over which measures are averaged.
        data: what was really trained on, for the picture.
    """
    runs = [(each.cell, run) for each in trained for run in each.runs]
    names = list(dict.fromkeys(name for _, run in runs for name in run.scores))
    rows = [_row(*each, names, last) for each in runs]
    judged = [NOTE] if grid.orderings else []
    averaged = [f"Measures are means over the last {last} epochs."] if last > 1 else []
    said = (*notes, *averaged, *_diverged(trained), *judged)
    columns = (*COLUMNS, *names)
    return Report(findings_of(grid, trained, last), columns, rows, _figures(trained, data), said)


def _diverged(trained: Sequence[Trained]) -> list[str]:
    """Which cells ended with a loss that is not finite, and under how many seeds, in a sentence."""
    said = []
    for cell, runs in trained:
        lost = sum(not math.isfinite(run.curve[-1].train_loss) for run in runs)
        said += [f"{cell.name} ({lost} of {len(runs)} seeds)"] * bool(lost)
    return [f"Training diverged: {'; '.join(said)}."] if said else []


def _row(cell: Cell, run: Run, scores: Sequence[str], last: int) -> tuple[object, ...]:
    numbers = [*(measured(run, name, last) for name in MEASURES), run.step_ms]
    reported = "" if cell.reported is None else cell.reported
    place = (cell.row, cell.column, cell.method, run.seed, run.curve[-1].epoch)
    rest = (run.parameters, reported, *(f"{run.scores[name]:.6g}" for name in scores))
    return (*place, *(f"{number:.6g}" for number in numbers), *rest)


#: The panels of a column.
PANELS = ("train_loss", "test_loss", "train_accuracy", "test_accuracy")


def _figures(trained: Sequence[Trained], data: str) -> dict[str, Figure]:
    """Losses and accuracies of every row in training and test, a row of panels a column."""
    columns = list(dict.fromkeys(t.cell.column for t in trained))
    figure = new_figure(len(PANELS), len(columns), width=4.4, height=3.8)
    for place, column in enumerate(columns):
        axes = figure.axes[len(PANELS) * place : len(PANELS) * (place + 1)]
        rows = {each.cell.row: each.runs for each in trained if each.cell.column == column}
        for ax, measure in zip(axes, PANELS, strict=True):
            draw_measure(ax, rows, measure)
            said = f"{words(measure)} ({'%' if is_fraction(measure) else 'nats'})"
            ax.set(xlabel="epoch", ylabel=said, title=column)
            if measure.endswith("loss"):
                ax.set_yscale("log")
        # Beside the panels: ten rows would cover the lines.
        axes[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8, frameon=False)
    if data:  # Panels are named as the paper's columns.
        said = f"trained and tested on {data}"
        figure.suptitle(said, fontsize="medium", parse_math=False)
    return {"curves": figure}
