"""Figure 1: histograms of units of a network trained with BN and with VCL, on UCI adult."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.data.load import load
from experiments.errors import UserError
from experiments.papers.data import find
from experiments.papers.item import Claim, Context, Report
from experiments.papers.vcl.fig1_units import Measured, Settings, measure
from experiments.papers.vcl.uci_data import split
from experiments.papers.verdict import NOT_TRAINED, by_interval
from experiments.reports.picture import COLOURS, new_figure
from experiments.reports.table import mean_and_deviation

#: What is drawn, and a control: a network without either.
METHODS_SHOWN, CONTROL = ("bn", "vcl"), "none"

LABELS = {"vcl": "VCL", "bn": "BN", "none": "none"}
COLUMNS = ("method", "seed", "layer", "unit", "kurtosis", "multimodal")


def run(settings: Settings, context: Context) -> Report:
    """Trains both methods under all seeds."""
    source = _source(context.data_dir, settings.bundled)
    found: list[Measured] = []
    for seed in range(settings.seeds):
        data = split(lambda s: load(source, s), seed, settings.rows, settings.test_rows)
        for method in (*METHODS_SHOWN, CONTROL):
            found.append(measure(settings, method, data, seed))
            context.advance(len(found) / (3 * settings.seeds), f"{method}, seed {seed}")
    rows = [
        (each.method, each.seed, layer, unit, f"{value:.6g}", int(several))
        for each in found
        for layer, (values, modes) in enumerate(zip(each.kurtosis, each.multimodal, strict=True), 1)
        for unit, (value, several) in enumerate(zip(values, modes, strict=True))
    ]
    figures = {"histograms": draw(settings, found)}
    return Report(claims_of(found), COLUMNS, rows, figures)


def claims_of(found: Sequence[Measured]) -> list[Claim]:
    """The units of several modes: are there more with VCL? And is each layer's kurtosis lower?"""
    share = _by_method(found, lambda each: 100 * float(np.concatenate(each.multimodal).mean()))
    claims = [_judged("units of more than one mode (dip test, 5%), %", share, 1, ".1f", found)]
    for layer in range(len(found[0].kurtosis)):
        medians = _by_method(found, partial(_median_kurtosis, layer))
        name = f"kurtosis of the median unit, hidden layer {layer + 1}"
        claims.append(_judged(name, medians, -1, ".2f", found))
    return claims


def _median_kurtosis(layer: int, measured: Measured) -> float:
    return float(np.median(measured.kurtosis[layer]))


def _by_method(
    found: Sequence[Measured], of: Callable[[Measured], float]
) -> dict[str, Float[np.ndarray, " seeds"]]:
    """A number of each run, by method and seed."""
    names = (*METHODS_SHOWN, CONTROL)
    return {name: np.array([of(each) for each in found if each.method == name]) for name in names}


def _judged(
    name: str,
    numbers: Mapping[str, Float[np.ndarray, " seeds"]],
    sign: int,
    digits: str,
    found: Sequence[Measured],
) -> Claim:
    """Whether VCL's number is above (sign 1) or below BN's, by the interval over paired seeds."""
    listed = [
        f"{label} {mean_and_deviation(list(numbers[key]), digits)}" for key, label in LABELS.items()
    ]
    wanted = "more with VCL than with BN" if sign > 0 else "VCL lower than BN"
    compared = [each for each in found if each.method in METHODS_SHOWN]
    lost = {f"{each.method} {each.outcome}" for each in compared if each.outcome}
    if lost:
        return Claim(name, ", ".join(sorted(lost)), wanted, said=NOT_TRAINED)
    ours = f"{', '.join(listed[:2])}; {listed[2]}"
    return by_interval(Claim(name, ours, wanted), sign * (numbers["vcl"] - numbers["bn"]))


def draw(settings: Settings, found: Sequence[Measured]) -> Figure:
    """Random units of the first seed, a hidden layer a row: BN left, VCL right."""
    units = np.random.default_rng(0).permutation(settings.width)[: settings.units]
    figure = new_figure(2 * len(units), settings.depth, width=2.1, height=1.7)
    axes = np.asarray(figure.axes, object).reshape((settings.depth, 2, len(units)))
    for place, measured in enumerate(found[: len(METHODS_SHOWN)]):  # Of the first seed.
        layers = zip(measured.values, measured.kurtosis, strict=True)
        for layer, (values, peaks) in enumerate(layers):
            for ax, unit in zip(axes[layer, place], units, strict=True):
                ax.hist(values[:, unit], bins=40, color=COLOURS[1 + place])
                ax.set_title(f"{measured.method}, kurtosis {peaks[unit]:.1f}", fontsize=9)
                ax.set_yticks([])
                ax.tick_params(labelsize=8)
            axes[layer, 0, 0].set_ylabel(f"layer {layer + 1}")
    return figure


def _source(data_dir: Path | None, bundled: bool) -> str:
    if data_dir is not None:
        return find(data_dir, "adult")
    if bundled:
        return "digits"
    raise UserError(
        "vcl/fig1 needs --data-dir, a folder with adult.npz (X, y and the mask test; see the "
        "command datasets) from https://archive.ics.uci.edu/dataset/2/adult. The preset smoke "
        "needs none."
    )
