"""Figure 2: under the loss alone a linear unit merges a rare mode and separates a common one."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.analysis.picture import COLOURS, draw_band, new_figure
from experiments.papers.item import Context, Finding, Item, Preset, Report
from experiments.papers.measured import at_least, at_most, measured_report
from jaxnorm import variance_constancy_loss
from jaxnorm.theory.vcl import separation_threshold
from jaxnorm.vcl import initial_betas, positive_betas

#: A number, which may be traced.
Scalar = float | Float[Array, ""]

#: The learning rate of Adam at the first step; it decays as a cosine.
LEARNING_RATE = 1e-2

#: |cos| to the means' difference below which modes are merged, and above which they are separated.
MERGED, SEPARATED = 0.1, 0.95


class Settings(NamedTuple):
    """Settings that the paper does not state: two dimensions, both covariances 1.

    Attributes:
        priors: the probabilities of the right component.
        separation: the distance of the means, along the first dimension.
        sample_sizes: n, the size of each subset, with the norm of the first weights.
        groups: independent pairs of subsets per step.
        steps: steps of Adam.
        seeds: the number of first weights, at angles to the means' difference in degrees.
        first_angle: the least of these angles.
        last_angle: the largest.
    """

    priors: tuple[float, ...] = (0.1, 0.25)
    separation: float = 6.0
    sample_sizes: tuple[tuple[int, float], ...] = ((50, 1.0), (2, 1.0), (2, 3.0))
    groups: int = 64
    steps: int = 5000
    seeds: int = 8
    first_angle: float = 15.0
    last_angle: float = 75.0


class Runs(NamedTuple):
    """Trained units of all seeds at every prior, for one n and norm of the first weights.

    Attributes:
        label: n and the norm.
        weights: the weights after training.
        cosine: |cos| of the weights and the difference of the means, after each step.
    """

    label: str
    weights: Float[np.ndarray, "priors seeds 2"]
    cosine: Float[np.ndarray, "priors seeds steps"]


def mixture_samples(key: Array, p: Scalar, separation: float, size: int) -> Float[Array, "size 2"]:
    """Draws samples of the mixture, from the right component with probability p."""
    noise, component = jax.random.split(key)
    right = jax.random.bernoulli(component, p, (size,))
    shift = jnp.where(right, separation / 2, -separation / 2)
    return jax.random.normal(noise, (size, 2)) + jnp.stack([shift, jnp.zeros(size)], 1)


def train_unit(
    settings: Settings, n: int, start: Scalar, p: Scalar, key: Array, angle: Scalar
) -> tuple[Float[Array, " 2"], Float[Array, " steps"]]:
    """Trains the unit from weights at an angle, in radians; returns weights and |cos| by step."""
    first = start * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    params = {"weights": first, "beta": initial_betas(jnp.zeros((2, 1)))}
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, settings.steps))

    def loss(params: dict[str, Array], x: Float[Array, "rows 2"]) -> Float[Array, ""]:
        activations = (x @ params["weights"])[:, None]
        betas = positive_betas(params["beta"])
        return variance_constancy_loss(activations, betas, n, groups=settings.groups)

    def step(state: Any, key: Array) -> Any:
        params, moments = state
        x = mixture_samples(key, p, settings.separation, 2 * n * settings.groups)
        updates, moments = optimizer.update(jax.grad(loss)(params, x), moments)
        params = optax.apply_updates(params, updates)
        weights = params["weights"]
        return (params, moments), jnp.abs(weights[0]) / jnp.linalg.norm(weights)

    keys = jax.random.split(key, settings.steps)
    (params, _), cosine = jax.lax.scan(step, (params, optimizer.init(params)), keys)
    return params["weights"], cosine


def run(settings: Settings, context: Context) -> Report:
    """Trains all units, the paper's larger samples first."""
    angles = jnp.deg2rad(jnp.linspace(settings.first_angle, settings.last_angle, settings.seeds))
    keys, priors = jax.random.split(jax.random.key(0), settings.seeds), jnp.array(settings.priors)
    all_runs = []
    for n, start in settings.sample_sizes:
        over_seeds = jax.vmap(partial(train_unit, settings, n, start), (None, 0, 0))
        trained = jax.jit(jax.vmap(over_seeds, (0, None, None)))(priors, keys, angles)
        all_runs.append(Runs(f"n = {n}, first norm {start:g}", *map(np.asarray, trained)))
        context.advance(len(all_runs) / len(settings.sample_sizes), all_runs[-1].label)
    findings = [
        _verdict(runs.label, p, runs.cosine[i, :, -1])
        for runs in all_runs
        for i, p in enumerate(settings.priors)
    ]
    return measured_report(findings, {"phase-shift": _draw(settings, all_runs)})


def _verdict(label: str, p: float, cosine: Float[np.ndarray, " seeds"]) -> Finding:
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


OURS = "the paper gives no protocol for this figure; this one is ours"

FIG2 = Item(
    "vcl/fig2",
    "the phase shift on a mixture of two Gaussians",
    "p = 0.1: the projection unites the clusters; p = 0.25: it separates them",
    run,
    smoke=Preset(Settings(groups=8, steps=60, seeds=2), "15 s on 2 CPU cores", "60 steps, 2 seeds"),
    cpu=Preset(Settings(), "1 min on 2 CPU cores", OURS),
    full=Preset(Settings(steps=20000, seeds=32), "15 min on 2 CPU cores", OURS),
)
