"""Figure 1: histograms of units of a network trained with BN and with VCL, on UCI adult."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, new_figure
from experiments.analysis.statistics import mean_and_deviation
from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.errors import UserError
from experiments.methods.table import METHODS
from experiments.papers.data import find
from experiments.papers.item import NOT_TRAINED, Context, Finding, Item, Preset, Report
from experiments.papers.states import preactivations
from experiments.papers.vcl.modes import multimodal
from experiments.papers.vcl.uci import Uci, split
from experiments.papers.verdict import by_interval
from experiments.training.fit import fit
from experiments.training.trainer import make_trainer
from jaxnorm import kurtosis

#: The methods that are drawn, and a control: a network without either.
METHODS_SHOWN = ("bn", "vcl")
LABELS = {"bn": "BN", "vcl": "VCL", "none": "none"}


@dataclass(frozen=True)
class Settings(Uci):
    """Settings of the UCI experiments, and of the figure.

    Attributes:
        units: the number of units that are drawn per layer.
    """

    activation: str = "elu"
    depth: int = 4
    units: int = 4


#: The pre-activations of each hidden layer on the test rows.
Layers = Sequence[Float[np.ndarray, "rows units"]]


def run(settings: Settings, context: Context) -> Report:
    """Trains both methods, and the control, under all seeds."""
    source = _source(context.data_dir, settings.bundled)
    frames: list[pl.DataFrame] = []
    drawn: dict[str, Layers] = {}  # The first seed's.
    for seed in range(settings.seeds):
        data = split(lambda s: load(source, s), seed, settings.train_rows, settings.test_rows)
        for method in LABELS:
            units, layers = measure(settings, method, data, seed)
            frames.append(units)
            drawn.setdefault(method, layers)
            context.advance(len(frames) / (3 * settings.seeds), f"{method}, seed {seed}")
    units = pl.concat(frames)
    rows = units.drop("outcome").with_columns(
        pl.col("kurtosis").round_sig_figs(6), pl.col("multimodal").cast(int)
    )
    figures = {"histograms": draw(settings, units.filter(seed=0), drawn)}
    return Report(findings_of(units), rows.columns, rows.rows(), figures)


def measure(settings: Settings, name: str, data: Dataset, seed: int) -> tuple[pl.DataFrame, Layers]:
    """Trains a network, and measures its hidden pre-activations on the test rows.

    Returns:
        A row per unit, with its kurtosis, True if it has several modes, and the outcome of the
        training; and the pre-activations.
    """
    method = METHODS[name].adjusted(Config(sample_size=settings.sample_size))
    trainer = make_trainer(method, settings, data)
    run = fit(trainer, data, seed)
    layers = [np.asarray(x) for x in preactivations(trainer, run.trained, data.X_test)]
    units = []
    for number, layer in enumerate(layers, 1):
        peaks = np.asarray(kurtosis(jnp.asarray(layer), 0), np.float64)
        place = {"method": name, "seed": seed, "layer": number, "unit": np.arange(len(peaks))}
        found = {"kurtosis": peaks, "multimodal": multimodal(layer), "outcome": run.outcome}
        units.append(pl.DataFrame({**place, **found}))
    return pl.concat(units), layers


def findings_of(units: pl.DataFrame) -> list[Finding]:
    """Compares VCL with BN: the share of units with several modes, and each layer's kurtosis."""
    shown = units.filter(pl.col("method").is_in(METHODS_SHOWN), pl.col("outcome") != "")
    lost = sorted(set(map(" ".join, shown.select("method", "outcome").iter_rows())))
    name, share = "units of more than one mode (dip test, 5%), %", 100 * pl.col("multimodal").mean()
    findings = [_judged(name, units, share, 1, ".1f", lost)]
    for (layer,), of_layer in units.group_by("layer", maintain_order=True):
        name, median = f"kurtosis of the median unit, hidden layer {layer}", pl.median("kurtosis")
        findings.append(_judged(name, of_layer, median, -1, ".2f", lost))
    return findings


def _judged(
    name: str, units: pl.DataFrame, measure: pl.Expr, sign: int, digits: str, lost: Sequence[str]
) -> Finding:
    """Judges if VCL's measure is above (sign 1) or below BN's, by the interval over seeds."""
    wanted = "more with VCL than with BN" if sign > 0 else "VCL lower than BN"
    if lost:
        return Finding(name, ", ".join(lost), wanted, reason=NOT_TRAINED)
    runs = units.group_by("method", "seed", maintain_order=True).agg(value=measure)
    numbers = {key: runs.filter(method=key)["value"].to_numpy() for key in LABELS}
    bn, vcl, none = (
        f"{label} {mean_and_deviation(list(numbers[key]), digits)}" for key, label in LABELS.items()
    )
    differences = sign * (numbers["vcl"] - numbers["bn"])
    return by_interval(name, wanted, differences, f"{vcl}, {bn}; {none}")


def draw(settings: Settings, units: pl.DataFrame, drawn: Mapping[str, Layers]) -> Figure:
    """Draws histograms of random units, one row per hidden layer: BN left, VCL right."""
    places = np.random.default_rng(0).permutation(settings.width)[: settings.units]
    figure = new_figure(2 * len(places), settings.depth, width=2.1, height=1.7)
    axes = np.asarray(figure.axes, object).reshape((settings.depth, 2, len(places)))
    for side, method in enumerate(METHODS_SHOWN):
        peaks = units.filter(method=method)["kurtosis"].to_numpy().reshape(settings.depth, -1)
        for layer, values in enumerate(drawn[method]):
            for ax, unit in zip(axes[layer, side], places, strict=True):
                ax.hist(values[:, unit], bins=40, color=COLOURS[1 + side])
                ax.set_title(f"{method}, kurtosis {peaks[layer, unit]:.1f}", fontsize=9)
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


FIG1 = Item(
    "vcl/fig1",
    "histograms of units on UCI adult, BN and VCL",
    "with VCL units have a few distinct modes, with BN they do not",
    run,
    smoke=Preset(
        Settings(
            depth=2,
            width=8,
            epochs=2,
            train_rows=200,
            test_rows=200,
            seeds=1,
            units=2,
            bundled=True,
        ),
        "15 s on 2 CPU cores",
        "digits, a network of 2 x 8 units, two epochs, one seed: it shows that the item runs, "
        "and nothing else",
    ),
    cpu=Preset(
        Settings(width=64, epochs=20, train_rows=4000, test_rows=4000, seeds=6),
        "2 min on 2 CPU cores",
        "4,000 training and 4,000 test rows, 64 units a layer, 20 epochs of 500",
    ),
    full=Preset(Settings(), "5 GPU hours (estimated)", "ELU, four layers, 3 seeds"),
)
