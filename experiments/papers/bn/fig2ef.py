"""Figures 2e and 2f: BN at one layer, its scales and the validation loss against the batch size."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.papers.bn.trainings import RATE_DECAY
from experiments.papers.grid import PAPER, Cell, Grid
from experiments.papers.grid_report import grid_item
from experiments.papers.item import Claim
from experiments.papers.presets import presets
from experiments.papers.trainings import Trained
from experiments.papers.verdict import NOT_TRAINED, by_interval, measured
from experiments.reports.picture import colour_of, new_figure
from experiments.runs.analyse import interval

#: 1 to 4 are convolutions, 5 is dense.
LAYERS, SIZES = (1, 2, 3, 4, 5), (16, 64, 256, 1024)

#: The batch size that the learning rate of the protocol is for.
REFERENCE_BATCH = 128

#: What the figures show, and its name.
MEASURES = {"gamma_squared": "gamma^2", "test_loss": "validation loss"}

NOTES = (
    "The paper names neither the network of these figures, nor the layers, the batch sizes, the "
    "initial learning rate, the epochs or the weight decay; the network is taken to be that of "
    "figures 2 (c) and (d), and the settings below are assumptions.",
    "gamma^2 is the mean over the units of the normalized layer at the end of training. The "
    "slope over log2 M is a least-squares fit for each seed; a claim holds (yes) if their mean is "
    "positive with its whole 95% interval (Student's t), fails (no) if it is negative with it, and "
    "is undecided otherwise, with one seed always.",
)


def _cell(layer: int, size: int) -> Cell:
    changes = {"norm_at": layer, "batch_size": size, "rate_scale": size / REFERENCE_BATCH}
    return Cell(f"BN at layer {layer}", "bn", f"M = {size}", None, "cifar10", changes)


def view(trained: Sequence[Trained]) -> tuple[list[Claim], Mapping[str, Figure]]:
    """How much each measure grows with the batch size, by layer."""
    layers = dict.fromkeys(each.cell.row for each in trained)
    claims = [_growth(trained, row, measure) for measure in MEASURES for row in layers]
    return claims, {"fig2ef": _drawn(trained, list(layers))}


def _growth(trained: Sequence[Trained], row: str, measure: str) -> Claim:
    """How much a measure grows when the batch size doubles."""
    sizes, values = _values(trained, row, measure)
    doublings = np.log2(sizes)
    doublings -= doublings.mean()
    slopes = doublings @ values / (doublings @ doublings)
    statement = f"{MEASURES[measure]} over a doubling of M, {row}"
    low, high = interval(slopes)
    between = f", 95% from {low:+.3g} to {high:+.3g}" if len(slopes) > 1 else ", one seed"
    found = f"by {slopes.mean():+.3g}{between}"
    claim = Claim(statement, found, "increases")
    if not np.isfinite(slopes).all():
        return claim._replace(said=NOT_TRAINED)
    return by_interval(claim, low, high)


def _values(
    trained: Sequence[Trained], row: str, measure: str
) -> tuple[list[int], Float[np.ndarray, "batch_sizes seeds"]]:
    """The batch sizes of a row, and a measure of its runs."""
    found: dict[int, list[float]] = {}
    for each in trained:
        if each.cell.row == row:
            size = each.cell.changes["batch_size"]
            found.setdefault(size, []).append(measured(each.run, measure))
    return list(found), np.array(list(found.values()))


def _drawn(trained: Sequence[Trained], rows: Sequence[str]) -> Figure:
    """Means over seeds, and from the least to the largest."""
    figure = new_figure(len(MEASURES))
    for axes, (measure, name) in zip(figure.axes, MEASURES.items(), strict=True):
        for index, row in enumerate(rows):
            sizes, values = _values(trained, row, measure)
            axes.plot(sizes, values.mean(1), "o-", color=colour_of(index), label=row)
            spread = values.min(1), values.max(1)
            axes.fill_between(sizes, *spread, color=colour_of(index), alpha=0.15)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="batch size M", ylabel=name)
    figure.axes[0].legend(fontsize=9)
    return figure


ITEM = grid_item(
    "bn/fig2ef",
    "BN at one layer at a time: gamma^2 and the validation loss against the batch size",
    "gamma^2 grows with the batch size wherever BN stands, and so does the validation loss",
    Grid(
        tuple(_cell(layer, size) for layer in LAYERS for size in SIZES),
        measure="test_loss",
        beside=("gamma_squared",),
    ),
    presets(
        PAPER.changed(
            model="cnn4",
            epochs=100,
            learning_rate=0.01,
            rate_decay=RATE_DECAY,
            scores=("gamma_squared",),
        ),
        smoke_rows=("BN at layer 4",),
        smoke_columns=("M = 16", "M = 64"),
        cpu={
            "only_rows": ("BN at layer 1", "BN at layer 4", "BN at layer 5"),
            "only_columns": ("M = 16", "M = 64", "M = 256"),
            "learning_rate": 0.025,
            "rows": 2048,
        },
        cpu_cost="20 min on 2 CPU cores (estimated)",
        full_cost="1 GPU hour a run, 60 runs (estimated)",
    ),
    notes=NOTES,
    view=view,
)
