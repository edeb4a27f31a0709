"""The report of trials: a table of all, and a picture of the effect of each setting."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments.analysis.colours import method_style
from experiments.analysis.csv import write_csv
from experiments.analysis.picture import draw_band, new_figure, picture
from experiments.analysis.tuning.grid import Grid
from experiments.analysis.tuning.rates import FILE, RATE, draw_rates
from experiments.runs.files import write_whole
from experiments.runs.spec import OFFSET, shown
from experiments.training.run import Run

#: Above this ratio of the largest value to the smallest, an axis is logarithmic.
DECADE = 4.0


def write_trials(out: Path, grid: Grid, runs: Sequence[Run], chosen: Sequence[Run]) -> None:
    """Writes tuning.csv, a row per trial, tuning.png, a panel per setting, and rates.png."""
    columns = ("method", "seed", *grid, "held_out_loss", "held_out_accuracy", "outcome", "chosen")
    write_csv(out / "tuning.csv", columns, (_row(run, grid, run in chosen) for run in runs))
    figure = new_figure(len(grid), width=5.5 + 2.0 / len(grid))
    for axes, (name, values) in zip(figure.axes, grid.items(), strict=True):
        _draw(axes, name, values, runs)
    # One legend outside of the panels, because not every method has each setting.
    drawn = [axes.get_legend_handles_labels() for axes in figure.axes]
    lines = {label: line for each in drawn for line, label in zip(*each, strict=True)}
    figure.legend(
        lines.values(), lines.keys(), loc="outside right upper", frameon=False, fontsize="small"
    )
    others = ",\nother settings at their best" if len(grid) > 1 else ""
    figure.suptitle(f"held-out rows: mean and range over seeds{others}")
    write_whole(out / "tuning.png", picture(figure))
    if RATE in grid:
        draw_rates(out / FILE, {"": runs})


def choices_at_ends(grid: Grid, runs: Sequence[Run]) -> list[str]:
    """Returns a line for each method and setting whose choice is an end of the grid."""
    ends = {name: {min(values), max(values)} for name, values in grid.items() if len(values) > 2}
    chosen = dict.fromkeys((run.method, *change) for run in runs for change in run.changes)
    return [
        f"{method} chose {name.replace('_', ' ')} {shown(value)}, an end of the grid: try values "
        "beyond."
        for method, name, value in chosen
        if value in ends.get(name, ())
    ]


def _row(run: Run, grid: Grid, chosen: bool) -> tuple[object, ...]:
    last, changes = run.curve[-1], dict(run.changes)
    values = [changes.get(name, "") for name in grid]
    results = f"{last.test_loss:.6g}", f"{last.test_accuracy:.6g}"
    return run.method, run.seed - OFFSET, *values, *results, run.outcome, int(chosen)


def _draw(axes: Axes, name: str, values: Sequence[float], runs: Sequence[Run]) -> None:
    """Draws held-out error against one setting: a line for each method that has it."""
    ordered = sorted(values)
    for method in dict.fromkeys(run.method for run in runs):
        trials = [run for run in runs if run.method == method and name in dict(run.changes)]
        if not trials:
            continue
        errors = _errors(trials, name, ordered)
        style = {"marker": "o", **method_style(method)}
        draw_band(axes, ordered, errors.T, errors.mean(1), method, **style)
    if ordered[0] > 0 and ordered[-1] > DECADE * ordered[0]:
        axes.set_xscale("log")
    axes.set_xticks(ordered, [*map(shown, ordered)], minor=False)
    axes.minorticks_off()
    axes.set(xlabel=name.replace("_", " "), ylabel="error on held-out rows (%)")


def _errors(
    runs: Sequence[Run], name: str, values: Sequence[float]
) -> Float[np.ndarray, "values seeds"]:
    """Returns the smallest error in percent over the other settings; NaN if every run diverged."""
    seeds = sorted({run.seed for run in runs})
    errors = np.full((len(values), len(seeds)), math.nan)
    for run in runs:
        place = values.index(dict(run.changes)[name]), seeds.index(run.seed)
        if not run.diverged:
            errors[place] = np.fmin(errors[place], 100 * (1 - run.curve[-1].test_accuracy))
    return errors
