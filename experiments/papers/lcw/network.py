"""The samples, the sigmoid network and the box plots of figures 2 to 4."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, new_figure
from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.methods.table import METHODS
from experiments.papers.data import find
from experiments.papers.hidden import preactivations
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer, make_trainer

#: The layers and the number of units that the figures show.
LAYERS, UNITS = (1, 5, 9), 20

Rows = Float[Array | np.ndarray, "samples *shape"]
Activations = list[Float[np.ndarray, "units samples"]]


def dataset(data_dir: Path | None) -> Dataset:
    """Loads CIFAR-10 from a folder, or the bundled digits."""
    return load("digits" if data_dir is None else find(data_dir, "cifar10"), 0)


def sigmoid_trainer(method: str, depth: int, data: Dataset, **changes: Any) -> Trainer:
    """Makes the trainer of ``depth`` layers, the classifier included, at a constant rate."""
    fixed = Config(model="mlp", activation="sigmoid", weight_decay=0.0, constrain_head=True)
    config = fixed.changed(depth=depth - 1, rate_schedule=((0.0, 1.0),), **changes)
    return make_trainer(METHODS[method], config, data)


def activations(trainer: Trainer, state: TrainState, X: Rows) -> Activations:
    """Returns the activations of the hidden layers, a unit per row, in float64.

    They may vary too little for float32.
    """
    layers = preactivations(trainer, state, X)
    return [np.asarray(jax.nn.sigmoid(layer), np.float64).T for layer in layers]


def draw(rows: dict[str, Activations]) -> Figure:
    """Draws a row of box plots per network: the first units of three layers."""
    figure = new_figure(len(LAYERS), len(rows), width=4.6, height=3.2)
    panels = iter(figure.axes)
    for title, layers in rows.items():
        for number in LAYERS:
            axes = next(panels)
            draw_boxes(axes, layers[number - 1][:UNITS], "unit", "activation")
            axes.set(ylim=(-0.02, 1.02), title=f"{title}: layer {number}")
    return figure


def draw_boxes(
    axes: Axes, values: Float[np.ndarray, "groups ..."], group: str, quantity: str
) -> None:
    """Draws one box per group, numbered from 1, with whiskers at the 1% and 99% quantiles."""
    flat = values.reshape(len(values), -1)
    axes.boxplot(list(flat), whis=(1, 99), showfliers=False, medianprops={"color": COLOURS[2]})
    ticks = np.arange(1, len(flat) + 1)
    axes.set_xticks(ticks, [str(tick) if tick == 1 or tick % 5 == 0 else "" for tick in ticks])
    axes.set(xlabel=group, ylabel=quantity)
