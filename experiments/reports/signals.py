"""The picture of signals: pre-activations, cosines, ranks and gradients over networks' layers.

``python -m experiments.reports.signals --model sigmoid50 --methods none,lcw`` draws those of
initial networks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments.comparison import Comparison
from experiments.methods.table import find_methods
from experiments.reports.files import write_whole
from experiments.reports.method_style import method_style
from experiments.reports.picture import new_figure, picture
from experiments.settings import Trains
from experiments.training.look import initial_network

#: A network's `jaxnorm.propagation` with a loss, in execution order.
Signal = Mapping[str, Any]

PANELS = {
    "size": "pre-activations (root mean square)",
    "cosine": "mean cosine between rows",
    "effective_rank": "effective rank",
    "gradient_norm": "norm of the gradient",
}


def draw_signals(path: Path, signals: Mapping[str, Signal], title: str) -> None:
    """Writes a PNG: a line for each network over its layers, in a panel for each quantity."""
    figure = new_figure(2, 2, height=3.4)
    panels: dict[str, Axes] = dict(zip(PANELS, figure.axes, strict=True))
    for index, (name, signal) in enumerate(signals.items()):
        for quantity, axes in panels.items():
            values = values_of(signal, quantity)
            style = method_style(name, index)
            axes.plot(np.arange(1, len(values) + 1), values, label=name, **style)
    for quantity, axes in panels.items():
        axes.set(xlabel="layer", ylabel=PANELS[quantity])
        if quantity in ("size", "gradient_norm"):
            axes.set_yscale("log")
    panels["size"].legend(fontsize=9)
    figure.suptitle(title, parse_math=False)
    write_whole(path, picture(figure))


def values_of(signal: Signal, quantity: str) -> Float[np.ndarray, " layers"]:
    """A quantity of every layer, or the root mean square of the pre-activations."""
    if quantity == "size":
        return np.sqrt(values_of(signal, "variance") + values_of(signal, "squared_mean"))
    found = [float(value) for key, value in signal.items() if key.rpartition("/")[2] == quantity]
    return np.array(found)


@dataclass(frozen=True)
class Signals(Trains):
    """Draw how far signal and gradient get in the initial networks of some methods."""

    methods: str = "none,bn,cwo,lcw,normprop"
    """The methods, comma-separated."""
    out: Path = Path("signals.png")
    """The picture."""

    def run(self) -> None:
        """Runs the command."""
        comparison, methods = Comparison(self.settings), find_methods(self.methods)
        dataset, signals = comparison.dataset(0), {}
        for spec in comparison.specs([(method.name, (), 0) for method in methods]):
            network = initial_network(comparison.trainer(spec, dataset), dataset, spec.seed)
            signals[spec.name] = network.signal()
        model = comparison.config.on(dataset.X_train.shape[1:]).model
        draw_signals(self.out, signals, f"{dataset.name}, {model}: before the first step")


if __name__ == "__main__":
    import tyro

    tyro.cli(Signals).run()
