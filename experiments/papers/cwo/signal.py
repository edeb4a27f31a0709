"""Section 3.1, Eq. 3: the signal that a layer keeps with c = 2, and the c that keeps all of it."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from experiments.analysis.picture import draw_lines, new_figure
from experiments.papers.item import Context, Report
from experiments.papers.measured import measured_report, near
from experiments.simulations.rectified_chain import KEEPING, Moments, gain, rectified_chain

#: (c, centred) by name, and the theory's gains of a layer, forwards and backwards: c / 2 or
#: c (1/2 - 1/(2 pi)), and c / 2.
_KEPT = 1 / KEEPING
CASES = {
    "c = 2, not centred": (2.0, False, 1.0, 1.0),
    "c = 2, centred": (2.0, True, 2.0 * _KEPT, 1.0),
    f"c = {KEEPING:.2f}, centred": (KEEPING, True, 1.0, KEEPING / 2),
}


class Settings(NamedTuple):
    """Settings of ours, since the paper derives Eq. 3 and measures nothing; its CNN's depth."""

    depth: int = 9
    width: int = 512
    samples: int = 64
    seeds: int = 16


def run(settings: Settings, context: Context) -> Report:
    """Measures the moments of each case through all layers."""
    keys = jax.random.split(jax.random.key(0), settings.seeds)
    moments = {}
    for index, (name, (radius, centered, *_)) in enumerate(CASES.items()):

        def chain(key: Array, radius: float = radius, centered: bool = centered) -> Moments:
            sizes = settings.depth, settings.width, settings.samples
            return rectified_chain(key, *sizes, radius, centered=centered)

        moments[name] = jax.tree.map(np.asarray, jax.jit(jax.vmap(chain))(keys))
        context.advance((index + 1) / len(CASES), name)
    measured = []
    for name, (_, _, forward, backward) in CASES.items():
        kept = float(np.exp(np.log(gain(moments[name].forward)).mean()))
        sent = float(np.exp(np.log(gain(moments[name].backward[:, ::-1])).mean()))
        measured += [
            near(f"second moment that a layer keeps, {name}", kept, forward, 0.05),
            near(f"the same of gradients, backwards, {name}", sent, backward, 0.05),
        ]
    return measured_report(measured, {"signal": _drawn(moments)})


def _drawn(moments: dict[str, Moments]) -> Figure:
    figure = new_figure(2)
    for axes, field in zip(figure.axes, Moments._fields, strict=True):
        lines = {name: getattr(each, field).mean(0) for name, each in moments.items()}
        draw_lines(axes, lines, "o-")
        axes.set_yscale("log")
        axes.set(xlabel="layer", ylabel=f"mean square, {field}s")
    return figure
