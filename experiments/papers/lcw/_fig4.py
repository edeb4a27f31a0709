"""Figure 4: variances through 20 sigmoid layers, forwards and backwards."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.papers._item import Context, Item, Preset, Report
from experiments.papers._measured import COLUMNS, Measured, at_most, claims, near, rows
from experiments.papers.lcw._boxes import draw_boxes
from experiments.papers.lcw._inputs import inputs
from experiments.reports import new_figure
from experiments.simulations import Chain, pooled_ratio, sigmoid_chain
from jaxnorm.theory.lcw import gradient_gain

#: (constrained, pooled) by name.
CASES = {"standard weights": (False, True), "LCW": (True, True), "by unit": (False, False)}


class Settings(NamedTuple):
    """What the paper leaves open: the width."""

    depth: int = 20
    width: int = 256
    samples: int = 100
    seeds: int = 8


def run(settings: Settings, context: Context) -> Report:
    """Runs the chain for each case and seed."""
    x = inputs(context.data_dir, settings.samples)
    keys = jax.random.split(jax.random.key(0), settings.seeds)

    def chain(key: Array, constrained: bool, pooled: bool) -> Chain:
        switches = {"constrained": constrained, "pooled": pooled, "width": settings.width}
        return sigmoid_chain(key, x, settings.depth, **switches)

    ratio_of = jax.jit(
        jax.vmap(lambda k, c, p: pooled_ratio(chain(k, c, p).gradients), (0, None, None))
    )
    ratios, shown = {}, {}
    for index, (name, switches) in enumerate(CASES.items()):
        ratios[name] = np.asarray(ratio_of(keys, *switches), np.float64)
        shown[name] = jax.tree.map(np.asarray, chain(keys[0], *switches))
        context.advance((index + 1) / len(CASES), name)
    measured = _measured(ratios, settings.depth)
    notes = [
        "The variance is pooled over samples and units, units' means included. If each unit's own "
        "variance over the samples is made 1 instead (by unit), nothing vanishes with standard "
        "weights either: the paper's figure needs the pooled one."
    ]
    figures = {"variances": _draw(shown)}
    return Report(claims(measured), COLUMNS, rows(measured), figures, notes)


def _measured(ratios: dict[str, Float[np.ndarray, " seeds"]], depth: int) -> list[Measured]:
    """The last two lines of theory are for wide layers: within a factor of what a seed spreads."""
    name = f"variance of the gradients, layer 1 over layer {depth}"
    predicted = {c: gradient_gain(jax.nn.sigmoid, c) ** (depth - 1) for c in (True, False)}
    mean = {case: float(np.exp(np.log(r).mean())) for case, r in ratios.items()}
    return [
        at_most(f"{name}, standard weights, largest seed", ratios["standard weights"].max(), 1e-12),
        at_most(
            f"{name}, LCW, largest of the ratio and its inverse",
            np.maximum(ratios["LCW"], 1 / ratios["LCW"]).max(),
            5,
        ),
        near(f"{name}, LCW, geometric mean", mean["LCW"], predicted[True], 0.5),
        near(
            f"log10 of the {name}, standard weights",
            np.log10(mean["standard weights"]),
            np.log10(predicted[False]),
            0.05,
        ),
        Measured(f"{name}, by unit, geometric mean", mean["by unit"], 1.0, None, "no vanishing"),
    ]


def _draw(shown: dict[str, Chain]) -> Figure:
    figure = new_figure(len(shown), 2, width=4.8, height=3.4)
    titles = {"by unit": "standard weights, variance by unit"}
    for column, (name, chain) in enumerate(shown.items()):
        top, bottom = figure.axes[column], figure.axes[column + len(shown)]
        draw_boxes(top, chain.preactivations, "layer", "pre-activation")
        top.set_title(titles.get(name, name))
        draw_boxes(bottom, chain.gradients, "layer", "gradient")
        bottom.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    return figure


ITEM = Item(
    "lcw/fig4",
    "pre-activations and their gradients through 20 sigmoid layers",
    "gradients vanish with standard weights and do not with LCW, where they grow slightly",
    run,
    {
        "smoke": Preset(Settings(width=64, seeds=2), "10 s on 2 CPU cores", "width 64, digits"),
        "cpu": Preset(
            Settings(), "20 s on 2 CPU cores", "digits for CIFAR-10, unless --data-dir holds it"
        ),
        "full": Preset(Settings(seeds=32), "1 min on 2 CPU cores; CIFAR-10 in --data-dir"),
    },
)
