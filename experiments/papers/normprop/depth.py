"""How far the moments that are propagated hold: layer upon layer of standardized activations."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.papers.item import Context, Report
from experiments.papers.measured import Measured, measured_report, near
from experiments.reports.picture import COLOURS, draw_lines, new_figure
from experiments.simulations.propagated_chain import Propagated, propagated_chain

ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}
ROWS: Mapping[str, bool] = {"plain rows": False, "centred rows": True}
#: How far from 1 a root mean square may be, to count as kept.
KEPT = 0.1


class Settings(NamedTuple):
    """A network that is deeper than the paper's nine layers."""

    depth: int = 40
    width: int = 256
    samples: int = 1000
    seeds: int = 3


def run(settings: Settings, context: Context) -> Report:
    """The size of the pre-activations of each layer, for each activation and kind of rows."""
    found: dict[tuple[str, str], Float[np.ndarray, " layers"]] = {}
    cases = [(name, kind) for name in ACTIVATIONS for kind in ROWS]
    for number, case in enumerate(cases, 1):
        found[case] = _sizes(settings, *case)
        context.advance(number / len(cases), ", ".join(case))
    measured = [each for case, sizes in found.items() for each in _measured(case, sizes)]
    return measured_report(measured, {"depth": _draw(found)})


def _sizes(settings: Settings, name: str, kind: str) -> Float[np.ndarray, " layers"]:
    """By layer, the mean over seeds of the logarithm, so that no seed speaks for all."""

    def one(key: jax.Array) -> Propagated:
        sizes = settings.depth, settings.width, settings.samples
        return propagated_chain(key, ACTIVATIONS[name], *sizes, centered=ROWS[kind])

    keys = jax.random.split(jax.random.key(0), settings.seeds)
    offset, deviation = jax.lax.map(one, keys)
    return np.exp(np.log(np.hypot(*map(np.asarray, (offset, deviation)))).mean(0))


def _measured(case: tuple[str, str], sizes: Float[np.ndarray, " layers"]) -> list[Measured]:
    said, last = ", ".join(case), len(sizes)
    ends = np.flatnonzero(np.abs(sizes - 1) > KEPT)
    held = float(ends[0]) if len(ends) else float(last)
    return [
        near(f"size in layer 1, {said}", float(sizes[0]), 1.0, KEPT),
        near(f"size in layer {last}, {said}", float(sizes[-1]), 1.0, KEPT),
        Measured(f"layers within a tenth, {said}", held, last, held == last, "all of them"),
    ]


def _draw(found: Mapping[tuple[str, str], Float[np.ndarray, " layers"]]) -> Figure:
    figure = new_figure(2)
    for axes, kind in zip(figure.axes, ROWS, strict=True):
        draw_lines(axes, {name: found[name, kind] for name in ACTIVATIONS}, first=1)
        axes.set_yscale("log")
        axes.axhline(1.0, color=COLOURS[0], linestyle="--")
        axes.set(title=kind, xlabel="layer", ylabel="root mean square of pre-activations")
    return figure
