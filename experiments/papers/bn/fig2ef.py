"""Figures 2e and 2f: BN at one layer, its scales and the validation loss against the batch size."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.analysis.picture import colour_of, draw_band, new_figure
from experiments.analysis.statistics import mean_and_interval
from experiments.papers.item import Finding
from experiments.papers.training import Trained
from experiments.papers.verdict import by_interval, measured

#: The measures of the figures, and their names.
MEASURES = {"gamma_squared": "gamma^2", "test_loss": "validation loss"}


def view(trained: Sequence[Trained]) -> tuple[list[Finding], Mapping[str, Figure]]:
    """Measures and draws the growth of each measure with the batch size, by layer."""
    layers = dict.fromkeys(each.cell.row for each in trained)
    findings = [_growth(trained, row, measure) for measure in MEASURES for row in layers]
    return findings, {"fig2ef": _drawn(trained, list(layers))}


def _growth(trained: Sequence[Trained], row: str, measure: str) -> Finding:
    """Tests the growth of a measure with each doubling of the batch size."""
    sizes, values = _values(trained, row, measure)
    doublings = np.log2(sizes)
    doublings -= doublings.mean()
    slopes = doublings @ values / (doublings @ doublings)
    statement = f"{MEASURES[measure]} over a doubling of M, {row}"
    return by_interval(statement, "increases", slopes, mean_and_interval(slopes, "+.3g"))


def _values(
    trained: Sequence[Trained], row: str, measure: str
) -> tuple[list[int], Float[np.ndarray, "batch_sizes seeds"]]:
    """Returns the batch sizes of a row, and a measure of its runs."""
    cells = [each for each in trained if each.cell.row == row]
    values = [[measured(run, measure) for run in each.runs] for each in cells]
    return [each.cell.changes["batch_size"] for each in cells], np.array(values)


def _drawn(trained: Sequence[Trained], rows: Sequence[str]) -> Figure:
    """Draws the means over seeds, with the range over seeds."""
    figure = new_figure(len(MEASURES))
    for axes, (measure, name) in zip(figure.axes, MEASURES.items(), strict=True):
        for index, row in enumerate(rows):
            sizes, values = _values(trained, row, measure)
            style = {"marker": "o", "color": colour_of(index)}
            draw_band(axes, sizes, values.T, values.mean(1), row, **style)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="batch size M", ylabel=name)
    figure.axes[0].legend(fontsize=9)
    return figure
