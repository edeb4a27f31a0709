"""Figure 2: under the loss alone a linear unit merges a rare mode and separates a common one."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, draw_band, new_figure
from experiments.papers.item import Context, Report
from experiments.papers.measured import Measured, at_least, at_most, measured_report
from experiments.simulations.mixture import Mixture, mixture_samples, train_unit
from jaxnorm.theory.vcl import separation_threshold

#: |cos| to the means' difference below which modes are merged, and above which they are separated.
MERGED, SEPARATED = 0.1, 0.95


class Settings(NamedTuple):
    """Settings that the paper does not state."""

    priors: tuple[float, ...] = (0.1, 0.25)
    separation: float = 6.0
    sample_sizes: tuple[tuple[int, float], ...] = ((50, 1.0), (2, 1.0), (2, 3.0))
    groups: int = 64
    steps: int = 5000
    seeds: int = 8
    first_angle: float = 15.0
    last_angle: float = 75.0


class Runs(NamedTuple):
    """Trained units of all seeds at every prior: (priors, seeds, ...)."""

    label: str
    weights: Float[np.ndarray, "priors seeds 2"]
    cosine: Float[np.ndarray, "priors seeds steps"]


def run(settings: Settings, context: Context) -> Report:
    """Trains all units, the paper's larger samples first."""
    all_runs = []
    for index, (n, start) in enumerate(settings.sample_sizes):
        all_runs.append(_train(settings, n, start))
        context.advance((index + 1) / len(settings.sample_sizes), all_runs[-1].label)
    measured = [
        _verdict(runs.label, p, runs.cosine[i, :, -1])
        for runs in all_runs
        for i, p in enumerate(settings.priors)
    ]
    return measured_report(measured, {"phase-shift": _draw(settings, all_runs)})


def _train(settings: Settings, n: int, start: float) -> Runs:
    setting = Mixture(settings.separation, n, settings.groups, settings.steps, start=start)
    angles = jnp.deg2rad(jnp.linspace(settings.first_angle, settings.last_angle, settings.seeds))
    keys = jax.random.split(jax.random.key(0), settings.seeds)
    over_seeds = jax.vmap(lambda p, k, a: train_unit(k, p, a, setting), (None, 0, 0))
    unit = jax.jit(jax.vmap(over_seeds, (0, None, None)))(jnp.array(settings.priors), keys, angles)
    label = f"n = {n}, first norm {start:g}"
    return Runs(label, np.asarray(unit.weights), np.asarray(unit.cosine))


def _verdict(label: str, p: float, cosine: Float[np.ndarray, " seeds"]) -> Measured:
    """Compares the seed that is farthest from the theorem's claim."""
    name = f"|cos| to the means' difference, p = {p:g}, {label}"
    if min(p, 1 - p) < separation_threshold():
        return at_most(f"largest {name}", cosine.max(), MERGED)
    return at_least(f"smallest {name}", cosine.min(), SEPARATED)


def _draw(settings: Settings, all_runs: Sequence[Runs]) -> Figure:
    figure = new_figure(3, len(settings.priors), width=4.6, height=3.8)
    for i, p in enumerate(settings.priors):
        inputs, histogram, curves = figure.axes[3 * i : 3 * i + 3]
        x = np.asarray(mixture_samples(jax.random.key(1), p, settings.separation, 2000))
        _draw_inputs(inputs, x, all_runs[0].weights[i])
        inputs.set_title(f"p = {p:g}: inputs, learned directions")
        histogram.hist(x @ all_runs[0].weights[i, 0], bins=60, color=COLOURS[1])
        title = "activations of the first seed"
        histogram.set(title=title, xlabel="activation", ylabel="samples of 2000")
        _draw_curves(curves, [(runs.label, runs.cosine[i]) for runs in all_runs])
    return figure


def _draw_inputs(
    axes: Axes, x: Float[np.ndarray, "samples 2"], weights: Float[np.ndarray, "seeds 2"]
) -> None:
    axes.plot(*x.T, ".", color=COLOURS[1], markersize=2, alpha=0.5)
    for direction in weights / np.linalg.norm(weights, axis=1, keepdims=True):
        axes.plot(*np.outer(direction, (-5, 5)), color=COLOURS[2], linewidth=1)
    axes.set(xlabel="$x_1$", ylabel="$x_2$")
    axes.set_aspect("equal", adjustable="datalim")


def _draw_curves(
    axes: Axes, curves: Sequence[tuple[str, Float[np.ndarray, "seeds steps"]]]
) -> None:
    for index, (label, cosine) in enumerate(curves):
        steps = np.arange(1, cosine.shape[1] + 1)
        colour = COLOURS[(0, 2, 3)[index % 3]]
        draw_band(axes, steps, cosine, np.median(cosine, 0), label, color=colour)
    axes.set_ylim(-0.02, 1.02)
    axes.locator_params("x", nbins=4)
    name, title = "|cos| to the means' difference", "median and range of the seeds"
    axes.set(xlabel="step", ylabel=name, title=title)
    axes.legend(fontsize=8, loc="center right")
