"""The picture of a comparison: training loss on the left, test accuracy on the right."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.reports._files import write_whole
from experiments.training import Run

# Okabe and Ito's palette, which stays distinct with any kind of colour vision; yellow is left out,
# being too pale for lines. Line styles tell apart what comes after one round of it.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("-", "--", ":")

STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.8,
}


def draw_curves(path: Path, runs: Sequence[Run], title: str) -> None:
    """Writes a PNG: a line for each method's mean, a band from its lowest to its highest seed."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        canvas = FigureCanvasAgg(figure)
        loss, accuracy = figure.subplots(1, 2)
        losses = _draw(loss, runs, "train_loss", 1.0)
        accuracies = _draw(accuracy, runs, "test_accuracy", 100.0)
        if all((line[np.isfinite(line)] > 0).all() for line in losses.values()):
            loss.set_yscale("log")
        _label(loss, losses, "training loss (cross-entropy, nats)")
        _label(accuracy, accuracies, "test accuracy (%)")
        figure.suptitle(title)
        content = io.BytesIO()
        canvas.print_png(content)
    write_whole(path, content.getvalue())


def _draw(
    axes: Axes, runs: Sequence[Run], measure: str, factor: float
) -> dict[str, Float[np.ndarray, " epochs"]]:
    """Draws every method's line and band, and returns the lines."""
    lines = {}
    for index, method in enumerate(dict.fromkeys(run.method for run in runs)):
        curves = [run.curve for run in runs if run.method == method]
        values = factor * np.array([[getattr(e, measure) for e in curve] for curve in curves])
        epochs = np.arange(1, values.shape[1] + 1)
        style = {"color": _colour(index), "linestyle": STYLES[index // len(COLOURS) % len(STYLES)]}
        marker = "o" if len(epochs) == 1 else None
        axes.plot(epochs, values.mean(0), label=method, marker=marker, **style)
        if len(curves) > 1:
            axes.fill_between(
                epochs, values.min(0), values.max(0), color=style["color"], alpha=0.15, linewidth=0
            )
        lines[method] = values.mean(0)
    return lines


def _label(axes: Axes, lines: dict[str, Float[np.ndarray, " epochs"]], measure: str) -> None:
    """Names the axes, and each line at its end, the names moved apart where they would overlap."""
    axes.set_xlabel("epoch")
    axes.set_ylabel(measure)
    axes.xaxis.get_major_locator().set_params(integer=True)
    finite = {method: line[-1] for method, line in lines.items() if np.isfinite(line[-1])}
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
            color=_colour(order.index(method)),
            va="center",
            annotation_clip=False,
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, in the same order, moved as little as needed to be at least ``gap`` apart."""
    if not heights:
        return []
    order = np.argsort(heights)
    # Subtracting the gaps turns "apart by at least gap" into "not decreasing", which pooling
    # neighbours that are out of order into their mean solves (isotonic regression).
    pools: list[list[float]] = []
    for rank, index in enumerate(order):
        pools.append([heights[index] - rank * gap])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    level = [float(np.mean(pool)) for pool in pools for _ in pool]
    result = np.empty(len(heights))
    result[order] = np.array(level) + gap * np.arange(len(heights))
    return result.tolist()


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]
