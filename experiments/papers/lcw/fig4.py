"""Figure 4: variances through 20 sigmoid layers, forwards and backwards."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.analysis.picture import new_figure
from experiments.papers.item import Context, Report
from experiments.papers.lcw.network import dataset, draw_boxes
from experiments.papers.measured import Measured, at_most, measured_report, near
from experiments.simulations.sigmoid_chain import Chain, Switch, pooled_ratio, sigmoid_chain
from jaxnorm.theory.lcw import gradient_gain

PLAIN, LCW, BY_UNIT = "standard weights", "LCW", "standard weights, variance by unit"
#: (constrained, pooled) by name.
CASES = {PLAIN: (False, True), LCW: (True, True), BY_UNIT: (False, False)}


class Settings(NamedTuple):
    """Settings; the paper does not state the width."""

    depth: int = 20
    width: int = 256
    samples: int = 100
    seeds: int = 8


def run(settings: Settings, context: Context) -> Report:
    """Runs the chain for each case and seed."""
    rows = dataset(context.data_dir).X_train[: settings.samples]
    x = jnp.asarray(rows.reshape(len(rows), -1))
    keys = jax.random.split(jax.random.key(0), settings.seeds)

    def chain(key: Array, constrained: Switch, pooled: Switch) -> Chain:
        return sigmoid_chain(
            key, x, settings.depth, constrained=constrained, pooled=pooled, width=settings.width
        )

    ratio_of = jax.jit(
        jax.vmap(lambda k, c, p: pooled_ratio(chain(k, c, p).gradients), (0, None, None))
    )
    ratios, shown = {}, {}
    for index, (name, switches) in enumerate(CASES.items()):
        ratios[name] = np.asarray(ratio_of(keys, *switches), np.float64)
        shown[name] = jax.tree.map(np.asarray, chain(keys[0], *switches))
        context.advance((index + 1) / len(CASES), name)
    measured = _measured(ratios, settings.depth)
    return measured_report(measured, {"variances": _draw(shown)})


def _measured(ratios: dict[str, Float[np.ndarray, " seeds"]], depth: int) -> list[Measured]:
    """Compares with the paper's two claims, and with the theory of infinitely wide layers."""
    name = f"variance of the gradients, layer 1 over layer {depth}"
    mean = {case: float(np.exp(np.log(r).mean())) for case, r in ratios.items()}
    lcw, plain = (gradient_gain(jax.nn.sigmoid, c) ** (depth - 1) for c in (True, False))
    factor = np.maximum(ratios[LCW], 1 / ratios[LCW]).max()
    log_mean, log_theory = np.log10(mean[PLAIN]), np.log10(plain)
    return [
        at_most(f"{name}, {PLAIN}, largest seed", ratios[PLAIN].max(), 1e-12),
        at_most(f"the same or its inverse, {LCW}, largest seed", factor, 5),
        near(f"the same, {LCW}, geometric mean", mean[LCW], lcw, 0.5),
        near(f"log10 of the same, {PLAIN}, geometric mean", log_mean, log_theory, 0.05),
        Measured(f"the same, {BY_UNIT}, geometric mean", mean[BY_UNIT], 1.0, None, "no change"),
    ]


def _draw(shown: dict[str, Chain]) -> Figure:
    figure = new_figure(len(shown), 2, width=4.8, height=3.4)
    for column, (name, chain) in enumerate(shown.items()):
        top, bottom = figure.axes[column], figure.axes[column + len(shown)]
        draw_boxes(top, np.asarray(chain.preactivations), "layer", "pre-activation")
        top.set_title(name)
        draw_boxes(bottom, np.asarray(chain.gradients), "layer", "gradient")
        bottom.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    return figure
