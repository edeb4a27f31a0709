"""Figures 2e and 2f: BN at one layer, its scales and the validation loss against the batch size."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.data.dataset import Dataset
from experiments.kept import RUNS, read_kept, write_kept
from experiments.methods.population import scales_and_biases
from experiments.methods.table import METHODS
from experiments.papers.bn.trainings import RATE_DECAY
from experiments.papers.data import described, load_data
from experiments.papers.fingerprint import with_data
from experiments.papers.grid import Protocol
from experiments.papers.item import Claim, Context, Item, Preset, Report
from experiments.papers.presets import SMOKE_LABEL
from experiments.papers.training import config_of
from experiments.papers.verdict import NOT_TRAINED, by_interval
from experiments.reading import record_of
from experiments.reports.picture import colour_of, new_figure
from experiments.runs.analyse import interval
from experiments.training.fit import Run, fit
from experiments.training.trainer import make_trainer

#: The batch size that `Settings.learning_rate` is for.
REFERENCE_BATCH = 128


@dataclass(frozen=True)
class Settings(Protocol):
    """The network of four convolutions, one layer of it with BN.

    The learning rate is that at a batch of 128, and in proportion to M at others; a run has as many
    epochs whatever M. Seeds are of the initial weights and the batches; the rows are the same.

    Attributes:
        layers: where BN stands, one network each: 1 to 4 are convolutions, 5 is dense.
        batch_sizes: M.
    """

    model: str = "cnn4"
    channels: int = 64
    epochs: int = 100
    batch_size: int = REFERENCE_BATCH
    learning_rate: float = 0.01
    rate_decay: float = RATE_DECAY
    weight_decay: float = 5e-4
    layers: tuple[int, ...] = (1, 2, 3, 4, 5)
    batch_sizes: tuple[int, ...] = (16, 64, 256, 1024)


class Point(NamedTuple):
    """One network after training."""

    layer: int
    batch_size: int
    seed: int
    gamma_squared: float
    train_loss: float
    test_loss: float
    test_accuracy: float


#: What the figures show: a field of `Point`, and its name.
MEASURES = {"gamma_squared": "gamma^2", "test_loss": "validation loss"}


def run(settings: Settings, context: Context) -> Report:
    """Trains every place of BN with every batch size; what an earlier call finished is kept."""
    data = load_data(context.data_dir, "cifar10", 0, settings.rows, settings.test_rows)
    path = context.out / RUNS
    protocol = with_data(asdict(settings), context.data_dir, ["cifar10"])
    points = read_kept(path, protocol, partial(record_of, Point))
    finished = {(point.layer, point.batch_size) for point in points}
    places = list(itertools.product(settings.layers, settings.batch_sizes))
    for index, (layer, batch_size) in enumerate(places):
        if (layer, batch_size) not in finished:
            points += _trained(settings, layer, batch_size, data)
            write_kept(path, protocol, [point._asdict() for point in points])
        context.advance((index + 1) / len(places), f"BN at layer {layer}, M = {batch_size}")
    claims = [
        _growth(settings, points, layer, measure)
        for measure in MEASURES
        for layer in settings.layers
    ]
    said = f"Trained and tested on: {described(context.data_dir, ['cifar10'])}."
    figures = {"fig2ef": _drawn(settings, points)}
    return Report(claims, Point._fields, points, figures, (said, *NOTES))


NOTES = (
    "The paper names neither the network of these figures, nor the layers, the batch sizes, the "
    "initial learning rate, the epochs or the weight decay; the network is taken to be that of "
    "figures 2 (c) and (d), and the settings below are assumptions.",
    "gamma^2 is the mean over the units of the normalized layer at the end of training. The "
    "slope over log2 M is a least-squares fit for each seed; a claim holds (yes) if their mean is "
    "positive with its whole 95% interval (Student's t), fails (no) if it is negative with it, and "
    "is undecided otherwise, with one seed always.",
)


def _trained(settings: Settings, layer: int, batch_size: int, data: Dataset) -> list[Point]:
    """The points of all seeds."""
    rate_scale = batch_size / REFERENCE_BATCH
    own = settings.changed(norm_at=layer, batch_size=batch_size, rate_scale=rate_scale)
    config = config_of(own)
    trainer = make_trainer(METHODS["bn"], config, data)
    seeds = range(settings.seeds)
    return [point_of(layer, batch_size, fit(trainer, data, seed)) for seed in seeds]


def point_of(layer: int, batch_size: int, run: Run) -> Point:
    """What is kept of a run: of gamma^2 the mean over the units of the only normalizer."""
    (scale,) = scales_and_biases(run.trained.params)[0].values()
    gamma_squared, last = float(jnp.mean(jnp.square(scale))), run.curve[-1]
    losses = (last.train_loss, last.test_loss, last.test_accuracy)
    return Point(layer, batch_size, run.seed, gamma_squared, *losses)


def _growth(settings: Settings, points: Sequence[Point], layer: int, measure: str) -> Claim:
    """How much a measure grows when the batch size doubles."""
    values = values_of(settings, points, layer, measure)
    doublings = np.log2(settings.batch_sizes)
    doublings -= doublings.mean()
    slopes = doublings @ values / (doublings @ doublings)
    statement = f"{MEASURES[measure]} over a doubling of M, BN at layer {layer}"
    low, high = interval(slopes)
    between = f", 95% from {low:+.3g} to {high:+.3g}" if len(slopes) > 1 else ", one seed"
    found = f"by {slopes.mean():+.3g}{between}"
    claim = Claim(statement, found, "increases")
    if not np.isfinite(slopes).all():
        return claim._replace(said=NOT_TRAINED)
    return by_interval(claim, low, high)


def values_of(
    settings: Settings, points: Sequence[Point], layer: int, measure: str
) -> Float[np.ndarray, "batch_sizes seeds"]:
    """A measure of the networks with BN at a layer."""
    by_place = {(p.batch_size, p.seed): getattr(p, measure) for p in points if p.layer == layer}
    seeds = range(settings.seeds)
    return np.array([[by_place[size, seed] for seed in seeds] for size in settings.batch_sizes])


def _drawn(settings: Settings, points: Sequence[Point]) -> Figure:
    """Means over seeds, and from the least to the largest."""
    figure = new_figure(len(MEASURES))
    for axes, (measure, name) in zip(figure.axes, MEASURES.items(), strict=True):
        for index, layer in enumerate(settings.layers):
            values = values_of(settings, points, layer, measure)
            colour, sizes = colour_of(index), settings.batch_sizes
            axes.plot(sizes, values.mean(1), "o-", color=colour, label=f"layer {layer}")
            axes.fill_between(sizes, values.min(1), values.max(1), color=colour, alpha=0.15)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="batch size M", ylabel=name)
    figure.axes[0].legend(title="BN at", fontsize=9)
    return figure


#: At a constant rate.
_FLAT = Settings(rate_decay=0.0)
_SMALLEST: dict[str, Any] = {"channels": 4, "epochs": 1, "rows": 256, "test_rows": 64, "seeds": 1}
_REDUCED: dict[str, Any] = {"channels": 16, "epochs": 10, "rows": 2048, "learning_rate": 0.025}

ITEM = Item(
    "bn/fig2ef",
    "BN at one layer at a time: gamma^2 and the validation loss against the batch size",
    "gamma^2 grows with the batch size wherever BN stands, and so does the validation loss",
    run,
    {
        "smoke": Preset(
            _FLAT.changed(layers=(4,), batch_sizes=(32, 64), **_SMALLEST),
            "30 s on 2 CPU cores",
            SMOKE_LABEL,
        ),
        "cpu": Preset(
            _FLAT.changed(layers=(1, 4, 5), batch_sizes=(16, 64, 256), test_rows=2000, **_REDUCED),
            "20 min on 2 CPU cores (estimated)",
            "2048 training and 2000 test images, networks of a quarter of the width, BN at three "
            "of five layers, batches up to 256, 10 epochs, 3 seeds",
        ),
        "full": Preset(Settings(), "1 GPU hour a run, 60 runs (estimated)"),
    },
)
