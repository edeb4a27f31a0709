"""Figure 2: the mean input of a unit of each hidden layer during training."""

from typing import Any

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, new_figure
from experiments.data.dataset import Dataset
from experiments.methods.table import METHODS
from experiments.papers.data import data_note, load_data
from experiments.papers.grid import Protocol
from experiments.papers.item import Context, Item, Preset, Report
from experiments.papers.measured import compared, measured_report
from experiments.papers.normprop.tables import FIFTY, NIN
from experiments.papers.states import epochs
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer, make_trainer
from jaxnorm import effective
from jaxnorm.nnx import functionalize

#: Section 5.2: the initial learning rates (a larger one made the plain network diverge), with data
#: normalized by the minibatch, as in all experiments after the first (5.1).
METHODS_AND_RATES = {"normprop-batch": 0.05, "bn": 0.05, "none": 1e-4}

#: The paper's averages over layers of |mean| after training.
REPORTED = {"normprop-batch": 0.19, "bn": 0.33}

SEED = 0


class Watched(nnx.Module):
    """A network that returns the inputs of its hidden layers and of its classifier."""

    def __init__(self, network: Any):
        self.network = network

    def __call__(self, x: Array) -> list[Array]:
        return self.network.activations(x)


def run(settings: Protocol, context: Context) -> Report:
    """Trains the three networks, and records the means after each epoch."""
    sizes = settings.train_rows, settings.test_rows, settings.held_out
    data = load_data(context.data_dir, "cifar10", 0, *sizes)
    means: dict[str, Float[np.ndarray, "epochs layers"]] = {}
    for method, rate in METHODS_AND_RATES.items():
        trainer = make_trainer(METHODS[method], settings.changed(learning_rate=rate), data)
        means[method] = _means(trainer, data)
        context.advance(len(means) / len(METHODS_AND_RATES), method)
    ended = {method: float(np.abs(m[-1]).mean()) for method, m in means.items()}
    findings = [
        compared(f"mean over layers of |mean|, {name}", ended[name], value, source="paper")
        for name, value in REPORTED.items()
    ]
    ratio, nearer = ended["normprop-batch"] / ended["bn"], ended["normprop-batch"] < ended["bn"]
    findings.append(compared("NormProp's over BN's", ratio, 0.19 / 0.33, nearer, "paper"))
    notes = (data_note(context.data_dir, ["cifar10"]),)
    return measured_report(findings, {"means": _drawn(means)}, notes)


def _means(trainer: Trainer, data: Dataset) -> Float[np.ndarray, "epochs layers"]:
    """Returns the mean of one fixed unit of each layer's input, over samples and positions."""
    network = nnx.eval_shape(lambda: trainer.network(jax.random.key(0)))
    apply = functionalize(Watched(network)).apply

    @jax.jit
    def means(state: TrainState, X: Array) -> list[Array]:
        weights, model_state = {"network": effective(state.params)}, {"network": state.model_state}
        layers, _ = apply(weights, model_state, X, train=False)
        return [layer[..., 0].mean() for layer in layers]

    X = jax.device_put(data.X_test)
    return np.array([means(state, X) for state, _ in epochs(trainer, data, SEED)])


def _drawn(means: dict[str, Float[np.ndarray, "epochs layers"]]) -> Figure:
    figure = new_figure(len(means), width=4, height=3.6)
    for axes, (method, values) in zip(figure.axes, means.items(), strict=True):
        for layer, line in enumerate(values.T):
            shade = 0.25 + 0.75 * layer / max(1, values.shape[1] - 1)
            style = {"color": COLOURS[1], "alpha": shade, "linewidth": 1.4}
            axes.plot(line, label=f"{method}, layer {layer + 1}", **style)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set(title=method, xlabel="epoch", ylabel="mean input of a unit (dark: deep layers)")
    return figure


FIG2 = Item(
    "normprop/fig2",
    "the mean of the inputs to hidden layers during training",
    "steadier and closer to zero with NormProp (0.19 on average) than with BN (0.33)",
    run,
    smoke=Preset(
        NIN.changed(epochs=1, rate_schedule=(), channels=4, train_rows=256, test_rows=64, seeds=1),
        "30 s on 2 CPU cores",
        "one epoch of enlarged digits on a narrow network: it shows that the item runs",
    ),
    cpu=Preset(
        NIN.changed(
            epochs=8,
            rate_schedule=((10 / 11, 0.5),),
            channels=16,
            train_rows=2000,
            test_rows=1000,
            seeds=1,
        ),
        "5 min on 2 CPU cores",
        "2,000 training images, a quarter of the width, 8 epochs",
    ),
    full=Preset(FIFTY.changed(seeds=1), "2 GPU hours (estimated)"),
)
