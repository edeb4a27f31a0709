"""The picture of a comparison: training loss, test accuracy, and the cost of a step on a TPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from scipy.optimize import isotonic_regression

from experiments.analysis.colours import colour_of_method, method_style
from experiments.analysis.comparison import NO_COSTS, by_method, failures, measure_of
from experiments.analysis.measures import factor
from experiments.analysis.picture import draw_band, line_style, new_figure, picture
from experiments.analysis.tpu import Cost
from experiments.methods.table import METHODS
from experiments.runs.files import write_whole
from experiments.training.run import Epoch, Run

#: The accuracies at which an axis may have ticks.
TICKS = (*range(0, 90, 10), 90, 95, 98, 99, 99.5, 99.8, 99.9, 100)


def draw_curves(
    path: Path, runs: Sequence[Run], title: str, costs: Mapping[str, Cost] = NO_COSTS
) -> None:
    """Writes a PNG: a line per method's mean, and a band from its lowest to its highest seed.

    The panels stand one below the other, which a narrow screen can show. A third panel
    shows test accuracy over traffic for the methods whose costs are known.
    """
    known = [run for run in runs if run.method in costs]
    figure = new_figure(rows=3 if known else 2, width=6.2, height=3.7)
    loss, accuracy, *trade = figure.axes
    losses = draw_measure(loss, by_method(runs), "train_loss")
    accuracies = draw_measure(accuracy, by_method(runs), "test_accuracy")
    drawn = np.concatenate([line[np.isfinite(line)] for line in losses.values()])
    if drawn.size and drawn.min() > 0:
        loss.set_yscale("log")
    _label(loss, losses, "training loss (cross-entropy, nats)")
    of = "" if measure_of(runs) == "test_accuracy" else " of pixels"
    _label(accuracy, accuracies, f"test accuracy{of} (%)")
    for axes in trade:
        draw_trade(axes, known, costs)
    figure.suptitle(title, parse_math=False)  # A file may be called cost$.npz.
    write_whole(path, picture(figure))


def draw_measure(
    axes: Axes, groups: Mapping[str, Sequence[Run]], measure: str
) -> dict[str, Float[np.ndarray, " epochs"]]:
    """Draws the line and band of each group's runs, and returns the lines."""
    lines: dict[str, Float[np.ndarray, " epochs"]] = {}
    everything: list[Float[np.ndarray, " n"]] = []
    for index, (name, runs) in enumerate(groups.items()):
        values = factor(measure) * _by_epoch([run.curve for run in runs], measure)
        mean = _mean(values)
        epochs = np.arange(1, values.shape[1] + 1)
        marker = "o" if len(epochs) == 1 else None
        # The rows of a paper's table are no methods.
        style = method_style(name) if name in METHODS else line_style(index)
        draw_band(axes, epochs, values, mean, name, marker=marker, **style)
        lines[f"{name}{failures(runs)}"] = mean
        everything += [mean, values.ravel()]
    if measure.endswith("accuracy"):
        _scale_by_error(axes, np.concatenate(everything))
    return lines


def _scale_by_error(axes: Axes, accuracies: Float[np.ndarray, " values"]) -> None:
    """Shows all accuracies on a scale by the logarithm of the error, which spreads the best."""
    finite = accuracies[np.isfinite(accuracies)]
    if not len(finite) or np.ptp(finite) == 0:
        return
    # An error of 0 is drawn at that end, half the least other error away.
    errors = 100 - finite
    least = max(float(errors[errors > 0].min(initial=100.0)) / 2, 1e-3)

    def up(accuracy: Any) -> Any:
        return -np.log(np.maximum(100 + least - np.asarray(accuracy), least / 2))

    axes.set_yscale("function", functions=(up, lambda height: 100 + least - np.exp(-height)))
    ends = up(np.array([finite.min(), finite.max()]))
    margin = 0.04 * np.ptp(ends)
    low, high = 100 + least - np.exp(-ends + np.array([margin, -margin]))
    axes.set_ylim(max(low, 0) if finite.min() >= 0 else low, min(high, 100 + least / 2))
    ticks: list[float] = []
    for tick in (tick for tick in TICKS if low <= tick <= high):
        if not ticks or up(tick) - up(ticks[-1]) > 0.05 * np.ptp(up(np.array([low, high]))):
            ticks.append(tick)
    if len(ticks) > 2:
        axes.set_yticks(ticks)
        axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")


def _by_epoch(curves: Sequence[Sequence[Epoch]], measure: str) -> Float[np.ndarray, "runs epochs"]:
    """Returns a measure of each run and epoch; NaN after the end of a run."""
    values = np.full((len(curves), max(map(len, curves))), np.nan)
    for row, curve in zip(values, curves, strict=True):
        row[: len(curve)] = [getattr(entry, measure) for entry in curve]
    return values


def _mean(values: Float[np.ndarray, "runs epochs"]) -> Float[np.ndarray, " epochs"]:
    """Averages the runs that are finite at the end; NaN if none is."""
    trained = values[np.isfinite(values[:, -1])]
    return trained.mean(0) if len(trained) else values[:1].mean(0)


def draw_trade(axes: Axes, runs: Sequence[Run], costs: Mapping[str, Cost]) -> None:
    """Draws the mean and range of each method's test accuracy over the bytes that its step moves.

    The mean is over the finite runs, like the curves'.
    """
    ends = {}
    for method, group in by_method(runs).items():
        scores = np.array([100 * run.curve[-1].test_accuracy for run in group])
        scores = scores[np.isfinite(scores)] if np.isfinite(scores).any() else scores
        mean, style = scores.mean(), method_style(method)
        reach = np.abs(np.array([[scores.min()], [scores.max()]]) - mean)
        face = style["color"] if style["linestyle"] == "-" else "white"
        dot = {"fmt": "o", "color": style["color"], "markerfacecolor": face, "capsize": 3}
        axes.errorbar(costs[method].traffic, mean, reach, **dot)
        ends[f"{method}{failures(group)}"] = mean
    axes.set(xlabel="bytes of a TPU step, none = 1", ylabel="test accuracy (%)")
    _name(axes, ends)


def _label(axes: Axes, lines: dict[str, Float[np.ndarray, " epochs"]], measure: str) -> None:
    """Labels the axes, and names each line at its end."""
    axes.set(xlabel="epoch", ylabel=measure)
    locator: Any = axes.xaxis.get_major_locator()
    locator.set_params(integer=True)
    _name(axes, {method: line[-1] for method, line in lines.items()})


def _name(axes: Axes, ends: Mapping[str, float | np.floating[Any]]) -> None:
    """Names lines at their ends, spread out if names would overlap; below, lines without an end."""
    finite = {method: end for method, end in ends.items() if np.isfinite(end)}
    lost = [method for method in ends if method not in finite]
    axes.text(0.02, 0.02, "\n".join(lost), transform=axes.transAxes, va="bottom")
    axes.autoscale_view()  # It is lazy; the names' heights need the final limits.
    transform = axes.transData + axes.transAxes.inverted()
    heights = [transform.transform((1.0, float(value)))[1] for value in finite.values()]
    places = zip(finite, spread_out(heights, gap=0.065), strict=True)
    for method, height in places:
        axes.annotate(
            method,
            (1.015, height),
            xycoords="axes fraction",
            color=colour_of_method(method.split(" (")[0]),
            va="center",
            annotation_clip=False,
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Moves heights as little as needed to be at least ``gap`` apart, in the same order."""
    if not heights:
        return []
    order, gaps = np.argsort(heights), gap * np.arange(len(heights))
    # Without the gaps, "apart by at least gap" means "not decreasing".
    places = isotonic_regression(np.take(heights, order) - gaps).x + gaps
    return places[np.argsort(order)].tolist()
