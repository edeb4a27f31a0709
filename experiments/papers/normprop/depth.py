"""Propagated moments in depth: layer upon layer of standardized activations."""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, draw_lines, new_figure
from experiments.papers.item import Context, Finding, Item, Preset, Report
from experiments.papers.measured import compared, measured_report, near
from jaxnorm import project_to_sphere
from jaxnorm.normprop import standardized


class Propagated(NamedTuple):
    """Root mean squares over the units' pre-activations of each layer, from the first to the last.

    Attributes:
        offset: of the units' means over the samples; 0 if normalization propagates.
        deviation: of the units' deviations; 1 if normalization propagates.
    """

    offset: Float[Array, " layers"]
    deviation: Float[Array, " layers"]


class Settings(NamedTuple):
    """Settings of a network that is deeper than the paper's nine layers."""

    depth: int = 40
    width: int = 256
    samples: int = 1000
    seeds: int = 3


def propagated_chain(
    settings: Settings, activation: Callable[[Array], Array], centered: bool, key: Array
) -> Propagated:
    """Runs normal inputs through layers z -> W g(z) of random unit-norm rows.

    g is the standardized activation; the rows sum to zero if ``centered``.
    """
    weights_key, start_key = jax.random.split(key)
    random = jax.random.normal(weights_key, (settings.depth, settings.width, settings.width))
    weights = project_to_sphere(random, -1, 1.0, centered=centered)
    layer = standardized(activation)

    def forward(a: Array, weight: Array) -> tuple[Array, Propagated]:
        z = a @ weight.T
        offset = jnp.sqrt(jnp.square(z.mean(0)).mean())
        return layer(z), Propagated(offset, jnp.sqrt(z.var(0).mean()))

    start = jax.random.normal(start_key, (settings.samples, settings.width))
    propagated: Propagated
    _, propagated = jax.lax.scan(forward, start, weights)
    return propagated


ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}
ROWS: Mapping[str, bool] = {"plain rows": False, "centred rows": True}
#: The largest distance from 1 of a root mean square that counts as kept.
KEPT = 0.1


def run(settings: Settings, context: Context) -> Report:
    """Measures the pre-activations' size in each layer, for each activation and kind of rows."""
    keys = jax.random.split(jax.random.key(0), settings.seeds)
    sizes: dict[tuple[str, str], Float[np.ndarray, " layers"]] = {}
    findings: list[Finding] = []
    cases = list(itertools.product(ACTIVATIONS, ROWS))
    for number, (name, kind) in enumerate(cases, 1):
        chain = partial(propagated_chain, settings, ACTIVATIONS[name], ROWS[kind])
        by_seed = np.hypot(*map(np.asarray, jax.lax.map(chain, keys)))
        # Geometric means over seeds, so that no seed dominates.
        sizes[name, kind] = np.exp(np.log(by_seed).mean(0))
        findings += _compare(f"{name}, {kind}", sizes[name, kind])
        context.advance(number / len(cases), f"{name}, {kind}")
    return measured_report(findings, {"depth": _draw(sizes)})


def _compare(case: str, sizes: Float[np.ndarray, " layers"]) -> list[Finding]:
    last, ends = len(sizes), np.flatnonzero(np.abs(sizes - 1) > KEPT)
    held = float(ends[0]) if len(ends) else float(last)
    return [
        near(f"size in layer 1, {case}", float(sizes[0]), 1.0, KEPT),
        near(f"size in layer {last}, {case}", float(sizes[-1]), 1.0, KEPT),
        compared(f"layers within a tenth, {case}", held, last, held == last, "all of them"),
    ]


def _draw(sizes: Mapping[tuple[str, str], Float[np.ndarray, " layers"]]) -> Figure:
    figure = new_figure(2)
    for axes, kind in zip(figure.axes, ROWS, strict=True):
        draw_lines(axes, {name: sizes[name, kind] for name in ACTIVATIONS}, first=1)
        axes.set_yscale("log")
        axes.axhline(1.0, color=COLOURS[0], linestyle="--")
        axes.set(title=kind, xlabel="layer", ylabel="root mean square of pre-activations")
    return figure


OURS = "the paper's networks have nine layers and it measures no moments; the chain is ours"

DEPTH = Item(
    "normprop/depth",
    "how many layers the propagated moments hold for",
    "mean 0 and variance 1 propagate from layer to layer (section 3)",
    run,
    smoke=Preset(
        Settings(depth=8, width=64, samples=200, seeds=1), "15 s on 2 CPU cores", "8 layers of 64"
    ),
    cpu=Preset(Settings(), "1 min on 2 CPU cores", OURS),
    full=Preset(Settings(samples=10000, seeds=10), "5 min on 2 CPU cores", OURS),
)
