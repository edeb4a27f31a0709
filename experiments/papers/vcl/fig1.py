"""Figure 1: histograms of units of a network trained with BN and with VCL, on UCI adult."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from matplotlib.figure import Figure

from experiments.data.dataset import Dataset
from experiments.data.load import load
from experiments.errors import UserError
from experiments.methods.flags import adjusted
from experiments.methods.table import METHODS, Overrides
from experiments.papers.data import find
from experiments.papers.grid import Protocol
from experiments.papers.item import Claim, Context, Item, Preset, Report
from experiments.papers.vcl.uci_data import split
from experiments.reports.picture import COLOURS, new_figure
from experiments.reports.table import spread
from experiments.training.fit import fit
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm.losses import collect_preactivations
from jaxnorm.statistics import kurtosis

#: What is drawn, and a control: a network without either.
METHODS_SHOWN, CONTROL = ("bn", "vcl"), "none"

#: The kurtosis of a uniform distribution; units below it are flatter: of two modes or more.
UNIFORM = 1.8
COLUMNS = ("method", "seed", "layer", "unit", "kurtosis")


@dataclass(frozen=True)
class Settings(Protocol):
    """The protocol of the UCI experiments, as far as the figure leaves it open.

    Attributes:
        sample_size: n of the loss.
        units: the units of a layer that are drawn.
        bundled: whether the digits stand in where there is no --data-dir.
    """

    model: str = "mlp"
    activation: str = "elu"
    depth: int = 4
    epochs: int = 500
    batch_size: int = 20
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    drops: tuple[tuple[float, float], ...] = ((0.4, 0.1),)
    head_dropout: float = 0.5
    sample_size: int = 10
    units: int = 4
    bundled: bool = False


class Measured(NamedTuple):
    """Of a method and a seed: hidden layers of units on the test rows."""

    method: str
    seed: int
    values: list[Float[np.ndarray, "rows units"]]
    kurtosis: list[Float[np.ndarray, " units"]]


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
        (each.method, each.seed, layer, unit, f"{value:.6g}")
        for each in found
        for layer, values in enumerate(each.kurtosis, 1)
        for unit, value in enumerate(values)
    ]
    figures = {"histograms": draw(settings, found)}
    return Report(claims_of(found), COLUMNS, rows, figures, NOTES)


def measure(settings: Settings, name: str, data: Dataset, seed: int) -> Measured:
    """Trains a network, and reads its hidden pre-activations on the test rows."""
    method = adjusted(METHODS[name], Overrides(sample_size=settings.sample_size))
    trainer = make_trainer(method, settings, data)
    layers = _preactivations(trainer, fit(trainer, data, seed).state, data.X_test)
    return Measured(name, seed, layers, [np.asarray(kurtosis(jnp.asarray(x), 0)) for x in layers])


def claims_of(found: Sequence[Measured]) -> list[Claim]:
    """The median unit's kurtosis in each layer, over seeds: is VCL's lower? And the flat units."""
    claims = []
    for layer in range(len(found[0].kurtosis)):
        bn, vcl, control = (
            [float(np.median(m.kurtosis[layer])) for m in found if m.method == method]
            for method in (*METHODS_SHOWN, CONTROL)
        )
        listed = f"VCL {spread(vcl, '.2f')}, BN {spread(bn, '.2f')}; none {spread(control, '.2f')}"
        name = f"kurtosis of the median unit, hidden layer {layer + 1}"
        holds = bool(np.mean(vcl) < np.mean(bn))
        claims.append(Claim(name, listed, "VCL lower than BN", holds))
    flat = {
        method: np.mean([np.concatenate(m.kurtosis) < UNIFORM for m in found if m.method == method])
        for method in METHODS_SHOWN
    }
    listed = f"VCL {100 * flat['vcl']:.1f}%, BN {100 * flat['bn']:.1f}%"
    claims.append(Claim("units flatter than a uniform distribution", listed, "modes with VCL"))
    return claims


def draw(settings: Settings, found: Sequence[Measured]) -> Figure:
    """Random units of the first seed, a hidden layer a row: BN left, VCL right."""
    units = np.random.default_rng(0).permutation(settings.width)[: settings.units]
    figure = new_figure(2 * len(units), settings.depth, width=2.1, height=1.7)
    axes = np.reshape(figure.axes, (settings.depth, 2, len(units)))
    for place, measured in enumerate(found[: len(METHODS_SHOWN)]):  # Of the first seed.
        for layer, (values, peaks) in enumerate(
            zip(measured.values, measured.kurtosis, strict=True)
        ):
            for ax, unit in zip(axes[layer, place], units, strict=True):
                ax.hist(values[:, unit], bins=40, color=COLOURS[1 + place])
                ax.set_title(f"{measured.method}, kurtosis {peaks[unit]:.1f}", fontsize=9)
                ax.set_yticks([])
                ax.tick_params(labelsize=8)
            axes[layer, 0, 0].set_ylabel(f"layer {layer + 1}")
    return figure


def _preactivations(
    trainer: Trainer, state: TrainState, X: Float[np.ndarray, "rows features"]
) -> list[Float[np.ndarray, "rows units"]]:
    def evaluated(params: PyTree, X: Array) -> tuple[Array, PyTree]:
        return trainer.context.functional.apply(params, state.model_state, X, train=False)

    @jax.jit
    def hidden(params: PyTree, X: Array) -> dict[str, Array]:
        return collect_preactivations(evaluated, params, X, layout=trainer.layout)[1]

    layers = hidden(trainer.method.weights(state.params, state.method_state), X)
    # In the order of a network's blocks: a dict that left jit is sorted by name.
    in_order = sorted(layers.items(), key=lambda entry: int(entry[0].split("/")[1]))
    return [np.asarray(layer) for _, layer in in_order]


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


NOTES = (
    "Pre-activations w'x + b of the test rows, after training: VCL acts on them, and BN's own "
    "scale and shift change no kurtosis. The kurtosis is 3 for a Gaussian, 1 for two equal peaks. "
    "The picture shows random units of the first seed; the verdict is about all units and seeds. "
    "The paper names neither the network nor the training of its figure; ours is that of its UCI "
    "experiments, with ELU and four layers. The network without either is a control of ours: it "
    "shows how much of the difference BN makes, and how much the loss.",
)

ITEM = Item(
    "vcl/fig1",
    "histograms of units on UCI adult, BN and VCL",
    "with VCL units have a few distinct modes, with BN they do not",
    run,
    {
        "smoke": Preset(
            Settings(
                depth=2, width=8, epochs=2, rows=200, test_rows=200, seeds=1, units=2, bundled=True
            ),
            "15 s on 2 CPU cores",
            "digits, a network of 2 x 8 units, two epochs, one seed: it shows that the item runs, "
            "and nothing else",
        ),
        "cpu": Preset(
            Settings(width=64, epochs=20, rows=4000, test_rows=4000, seeds=3),
            "1 min on 2 CPU cores",
            "4,000 training and 4,000 test rows, 64 units a layer, 20 epochs of 500",
        ),
        "full": Preset(Settings(), "5 GPU hours (estimated)", "ELU, four layers, 3 seeds"),
    },
)
