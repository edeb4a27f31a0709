"""The picture of accuracy against the learning rate: who survives whose rate."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments.analysis.colours import colour_of_method
from experiments.analysis.picture import new_figure, picture
from experiments.runs.files import write_whole
from experiments.runs.spec import shown
from experiments.training.run import Run

#: The setting that the picture is about.
RATE = "learning_rate"

FILE = "rates.png"

#: Dashes, marker and filling of a method, which tell methods apart without colors.
STYLES: Mapping[str, tuple[Any, str, bool]] = {
    "bn": ("-", "s", True),
    "gn": ("--", "^", False),
    "ws+gn": ("--", "v", False),
    "normalizer-free": ("-.", "o", False),
    "moving-average": ((0, (1, 1)), "D", True),
    "none": (":", "x", True),
}

#: Dashes and markers of other methods, in their order.
OTHERS = (((0, (5, 1)), "P"), ((0, (3, 1, 1, 1)), "*"), ((0, (7, 2)), "<"), ((0, (2, 2)), ">"))

#: The most panels beside each other.
COLUMNS = 4


def draw_rates(path: Path, networks: Mapping[str, Sequence[Run]]) -> None:
    """Writes a PNG with a panel per network: held-out accuracy of trials over their rates.

    A mark is one seed's best over the other settings, the line runs through the means. Trials that
    diverged are crosses on the axis.
    """
    columns = min(COLUMNS, len(networks))
    figure = new_figure(columns, -(-len(networks) // columns), width=4.2, height=3.4)
    methods = list(dict.fromkeys(run.method for runs in networks.values() for run in runs))
    for axes, (name, runs) in zip(figure.axes, networks.items(), strict=False):
        _draw(axes, runs, methods)
        axes.set_title(name, fontsize=11, parse_math=False)
    for axes in figure.axes[len(networks) :]:
        axes.set_axis_off()
    drawn = [axes.get_legend_handles_labels() for axes in figure.axes]
    lines = {label: line for each in drawn for line, label in zip(*each, strict=True)}
    figure.legend(
        lines.values(), lines.keys(), loc="outside upper center", ncols=3, frameon=False, fontsize=9
    )
    figure.supxlabel("learning rate", fontsize=11)
    figure.supylabel("accuracy on held-out rows (%)", fontsize=11)
    write_whole(path, picture(figure))


def _draw(axes: Axes, runs: Sequence[Run], methods: Sequence[str]) -> None:
    """Draws the trials of one network."""
    rates = sorted({_rate(run) for run in runs})
    for index, method in enumerate(methods):
        trials = [run for run in runs if run.method == method]
        if not trials:
            continue
        dashes, marker, is_full = STYLES.get(method, (*OTHERS[index % len(OTHERS)], False))
        color = colour_of_method(method)
        style = {"color": color, "marker": marker, "markerfacecolor": color if is_full else "white"}
        scores = accuracies(trials, rates)
        axes.plot(rates, _means(scores), linestyle=dashes, label=method, markersize=6, **style)
        for of_seed in scores.T:
            axes.plot(rates, of_seed, linestyle="", markersize=3.5, alpha=0.7, **style)
        lost = [rate for rate, row in zip(rates, scores, strict=True) if np.isnan(row).any()]
        if lost:
            across = axes.get_xaxis_transform()
            axes.plot(lost, [0.03] * len(lost), "x", color=color, transform=across)
    axes.set_xscale("log")
    axes.set_xlim(rates[0] / 1.2, rates[-1] * 1.2)
    axes.set_xticks(rates, [*map(shown, rates)], minor=False)
    axes.minorticks_off()


def accuracies(runs: Sequence[Run], rates: Sequence[float]) -> Float[np.ndarray, "rates seeds"]:
    """Returns the best accuracy in percent over the other settings; NaN if every run diverged."""
    seeds = sorted({run.seed for run in runs})
    found = np.full((len(rates), len(seeds)), math.nan)
    for run in runs:
        place = rates.index(_rate(run)), seeds.index(run.seed)
        if not run.diverged:
            found[place] = np.fmax(found[place], 100 * run.curve[-1].test_accuracy)
    return found


def _means(scores: Float[np.ndarray, "rates seeds"]) -> list[float]:
    """Returns the mean of each rate over the seeds that trained; NaN without any."""
    return [float(np.mean(x)) if (x := row[~np.isnan(row)]).size else math.nan for row in scores]


def _rate(run: Run) -> float:
    return float(dict(run.changes)[RATE])
