"""The picture of a comparison: training loss on the left, test accuracy on the right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from scipy.optimize import isotonic_regression

from experiments.reports.files import write_whole
from experiments.reports.picture import colour_of, line_style, new_figure, picture
from experiments.reports.table import failures
from experiments.training.fit import Run
from experiments.training.history import Epoch


def draw_curves(path: Path, runs: Sequence[Run], title: str) -> None:
    """Writes a PNG: a line for each method's mean, a band from its lowest to its highest seed."""
    figure = new_figure(2)
    loss, accuracy = figure.axes
    losses = _draw(loss, runs, "train_loss", 1.0)
    accuracies = _draw(accuracy, runs, "test_accuracy", 100.0)
    drawn = np.concatenate([line[np.isfinite(line)] for line in losses.values()])
    if drawn.size and drawn.min() > 0:
        loss.set_yscale("log")
    _label(loss, losses, "training loss (cross-entropy, nats)")
    _label(accuracy, accuracies, "test accuracy (%)")
    figure.suptitle(title, parse_math=False)  # A file may be called cost$.npz.
    write_whole(path, picture(figure))


def _draw(
    axes: Axes, runs: Sequence[Run], measure: str, factor: float
) -> dict[str, Float[np.ndarray, " epochs"]]:
    """Draws every method's line and band, and returns the lines."""
    lines = {}
    for index, method in enumerate(dict.fromkeys(run.method for run in runs)):
        own = [run for run in runs if run.method == method]
        values = factor * _by_epoch([run.curve for run in own], measure)
        mean = _mean(values)
        epochs = np.arange(1, values.shape[1] + 1)
        style = line_style(index)
        marker = "o" if len(epochs) == 1 else None
        axes.plot(epochs, mean, label=method, marker=marker, **style)
        if len(own) > 1:
            low, high = np.fmin.reduce(values), np.fmax.reduce(values)
            axes.fill_between(epochs, low, high, color=style["color"], alpha=0.15, linewidth=0)
        lines[f"{method}{failures(own)}"] = mean
    return lines


def _by_epoch(curves: Sequence[Sequence[Epoch]], measure: str) -> Float[np.ndarray, "runs epochs"]:
    """A measure of each run and epoch; NaN where a run had ended."""
    values = np.full((len(curves), max(map(len, curves))), np.nan)
    for row, curve in zip(values, curves, strict=True):
        row[: len(curve)] = [getattr(entry, measure) for entry in curve]
    return values


def _mean(values: Float[np.ndarray, "runs epochs"]) -> Float[np.ndarray, " epochs"]:
    """The mean of the runs that are finite in the end; NaN if none is."""
    trained = values[np.isfinite(values[:, -1])]
    return trained.mean(0) if len(trained) else values[:1].mean(0)


def _label(axes: Axes, lines: dict[str, Float[np.ndarray, " epochs"]], measure: str) -> None:
    """Names the axes, and each line at its end, the names moved apart where they would overlap."""
    axes.set(xlabel="epoch", ylabel=measure)
    locator: Any = axes.xaxis.get_major_locator()
    locator.set_params(integer=True)
    finite = {method: line[-1] for method, line in lines.items() if np.isfinite(line[-1])}
    lost = [method for method in lines if method not in finite]
    axes.text(0.02, 0.02, "\n".join(lost), transform=axes.transAxes, va="bottom")
    axes.autoscale_view()  # It is lazy; the names' heights need the final limits.
    transform = axes.transData + axes.transAxes.inverted()
    heights = [transform.transform((1.0, value))[1] for value in finite.values()]
    places = zip(finite, spread_out(heights, gap=0.065), strict=True)
    order = list(lines)
    for method, height in places:
        axes.annotate(
            method,
            (1.015, height),
            xycoords="axes fraction",
            color=colour_of(order.index(method)),
            va="center",
            annotation_clip=False,
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, in the same order, moved as little as needed to be at least ``gap`` apart."""
    if not heights:
        return []
    order, gaps = np.argsort(heights), gap * np.arange(len(heights))
    # Less the gaps, "apart by at least gap" is "not decreasing".
    places = isotonic_regression(np.take(heights, order) - gaps).x + gaps
    return places[np.argsort(order)].tolist()
