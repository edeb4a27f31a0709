"""Figures 2 and 3: activations of a sigmoid network of ten layers, with and without LCW."""

import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, new_figure
from experiments.config import Config
from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.methods.table import METHODS
from experiments.papers.data import data_note, find
from experiments.papers.item import Context, Finding, Item, Preset, Report
from experiments.papers.measured import at_least, at_most, compared, measured_report, near
from experiments.papers.states import epochs, preactivations
from experiments.training.fit import start
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm.normprop import gaussian_moments
from jaxnorm.theory.lcw import variance_gain

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


class Settings(NamedTuple):
    """Settings of figure 2; the paper states depth and epochs."""

    depth: int = 10
    width: int = 256
    samples: int = 100
    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 0.1


def run_trained(settings: Settings, context: Context) -> Report:
    """Initializes, trains, and measures the activations before and after."""
    data = dataset(context.data_dir)
    names = ("width", "epochs", "batch_size", "learning_rate")
    changes = {name: getattr(settings, name) for name in names}
    trainer = sigmoid_trainer("lcw", settings.depth, data, **changes)
    x, states = data.X_train[: settings.samples], epochs(trainer, data, 0)
    before = activations(trainer, next(states)[0], x)
    context.advance(0.3, "initialized")
    *_, (state, _) = states
    after = activations(trainer, state, x)
    accuracy = float(trainer.evaluate(state, *jax.device_put(data[:2])).accuracy)
    # Sigmoids make a deviation of 0.208 around 0.5 of unit variance.
    deviation = jnp.sqrt(variance_gain(jax.nn.sigmoid, 1.0)[0])
    begun, ended = "at the start, layer", "after training, layer"
    findings: list[Finding] = []
    for n in LAYERS:
        name = f"{begun} {n}: std of all activations"
        findings.append(near(name, before[n - 1].std(), deviation, 0.05))
    for n in LAYERS:
        # Four standard errors of the mean of 256 units, whose means spread by up to 0.2.
        findings.append(
            near(f"{begun} {n}: mean of all activations", before[n - 1].mean(), 0.5, 0.1)
        )
    for n in LAYERS:
        spread = np.median(after[n - 1].std(1))
        findings.append(at_least(f"{ended} {n}: median over units of the deviation", spread, 0.05))
    findings.append(compared("training accuracy", accuracy, 1.0, source="perfect"))
    figure = draw({"at the start": before, "trained": after})
    notes = [data_note(context.data_dir, ["cifar10"])]
    return measured_report(findings, {"activations": figure}, notes)


class Network(NamedTuple):
    """Settings of figure 3; the paper does not state the width."""

    depth: int = 10
    width: int = 256
    samples: int = 100


def run_plain(settings: Network, context: Context) -> Report:
    """Initializes a network, and measures the variances of its activations."""
    data = dataset(context.data_dir)
    trainer = sigmoid_trainer("none", settings.depth, data, width=settings.width)
    layers = activations(trainer, start(trainer, 0, data.X_train), data.X_train[: settings.samples])
    variances = {n: float(layers[n - 1].var(1).mean()) for n in LAYERS}
    measured_log = np.log10(variances[9] / variances[5])
    predicted_log = 4 * math.log10(_gain_at_the_fixed_point())
    with_lcw = float(variance_gain(jax.nn.sigmoid, 1.0)[0])
    name = "mean over units of the variance over samples"
    findings = [
        at_most(f"{name}, layer 9 over layer 1", variances[9] / variances[1], 1e-6),
        near(f"log10 of the {name}, layer 9 over layer 5", measured_log, predicted_log, 0.05),
        *(
            compared(f"{name}, layer {n}", variances[n], with_lcw, source="with LCW")
            for n in LAYERS
        ),
    ]
    figures = {"activations": draw({"without LCW": layers})}
    return measured_report(findings, figures, [data_note(context.data_dir, ["cifar10"])])


def _scaled_sigmoid(scale: float, x: Array) -> Array:
    return jax.nn.sigmoid(scale * x)


def _gain_at_the_fixed_point() -> float:
    """Returns the gain of the variance over samples per layer, at a fixed mean square.

    Rows of Glorot's square kernels have a norm of 1, so the mean square of a pre-activation is
    that of the activations, q = E f(sqrt(q) Z)^2. A small variance over samples is multiplied by
    E f'(sqrt(q) Z)^2.
    """
    q = 0.25
    for _ in range(10):
        mean, std = gaussian_moments(partial(_scaled_sigmoid, math.sqrt(q)))
        q = float(mean**2 + std**2)
    _, gain = variance_gain(jax.nn.sigmoid, math.sqrt(q))
    return float(gain)


#: In the place of CIFAR-10.
DIGITS = "digits for CIFAR-10, unless --data-dir holds it"

FIG2 = Item(
    "lcw/fig2",
    "activations of a 10-layer sigmoid network with LCW, before and after training",
    "around 0.5 in every unit at the start; various values after 10 epochs",
    run_trained,
    smoke=Preset(Settings(width=64, epochs=1), "10 s on 2 CPU cores", "digits, width 64, 1 epoch"),
    cpu=Preset(Settings(), "20 s on 2 CPU cores", DIGITS),
    full=Preset(Settings(batch_size=128), "5 min on 2 CPU cores; CIFAR-10 in --data-dir"),
)

FIG3 = Item(
    "lcw/fig3",
    "activations of a 10-layer sigmoid network without LCW",
    "their variance rapidly shrinks through the layers",
    run_plain,
    smoke=Preset(Network(width=64), "10 s on 2 CPU cores", "digits, width 64"),
    cpu=Preset(Network(), "10 s on 2 CPU cores", DIGITS),
    full=Preset(Network(), "10 s on 2 CPU cores; CIFAR-10 in --data-dir"),
)
