"""Figure 1: activation shift makes stripes in the product of two random matrices."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from experiments.analysis.picture import new_figure
from experiments.papers.item import Context, Item, Preset, Report
from experiments.papers.measured import at_most, measured_report, near
from jaxnorm import center
from jaxnorm.theory.lcw import activation_shift, forward_moments

MEAN, VARIANCE = 0.5, 1 / 12  # Of an activation, uniform on (0, 1).


class Settings(NamedTuple):
    """Settings: the figure has one draw; more draws are for the numbers."""

    units: int = 100
    samples: int = 100
    draws: int = 1


def run(settings: Settings, context: Context) -> Report:
    """Draws, multiplies, and measures the share of the variance between rows."""
    keys = jax.random.split(jax.random.key(0), settings.draws)
    shape = (settings.units, settings.samples)
    # Z's rows are units: their means' variance is m / 12, the remaining variance m / 36.
    between = MEAN**2 * settings.units / 3
    expected = between / (between + VARIANCE * settings.units / 3)
    shares, errors = [], []
    for key in keys:
        weight, activations = _draw(key, shape)
        products = (w @ activations for w in (weight, center(weight, 1)))
        shares.append([float(z.mean(1).var() / z.var()) for z in products])
        difference = (weight @ activations).mean(1) - activation_shift(weight, MEAN)
        deviation = jnp.sqrt(forward_moments(weight, MEAN, VARIANCE)[1] / settings.samples)
        errors.append(float(jnp.abs(difference / deviation).max()))
    plain, centered = np.mean(shares, 0)
    # Sample means vary by 1 / samples of the variance even if the true means are equal.
    chance = 1 / settings.samples
    measured = [
        near("share of Z's variance between rows, plain W", plain, expected, 0.1),
        at_most("the same, zero-sum rows", centered, 2 * chance),
        at_most("largest |row mean - activation_shift| in standard errors", max(errors), 5),
    ]
    return measured_report(measured, {"stripes": _picture(*_draw(keys[0], shape))})


def _draw(key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Draws W from (-1, 1) and A from (0, 1)."""
    units, samples = shape
    first, second = jax.random.split(key)
    weight = jax.random.uniform(first, (units, units), minval=-1.0)
    return weight, jax.random.uniform(second, (units, samples))


def _picture(weight: Array, activations: Array) -> Figure:
    figure = new_figure(4, width=3.6, height=3.4)
    before, unit, sample = "unit of layer l - 1", "unit of layer l", "sample"
    panels = (
        ("(a) W", weight, before, unit),
        ("(b) A", activations, sample, before),
        ("(c) Z = W A", weight @ activations, sample, unit),
        ("(d) Z, rows of W zero-sum", center(weight, 1) @ activations, sample, unit),
    )
    widest = float(jnp.abs(weight @ activations).max())
    for axes, (title, values, across, down) in zip(figure.axes, panels, strict=True):
        limits: dict[str, Any] = {"vmin": -widest, "vmax": widest} if "Z" in title else {}
        image = axes.imshow(np.asarray(values), cmap="coolwarm", **limits)
        axes.set(title=title, xlabel=across, ylabel=down)
        axes.grid(False)
        figure.colorbar(image, ax=axes, shrink=0.7)
    return figure


OF_100 = "numbers over 100 draws"

#: The figure has one draw; more are for the numbers.
FIG1 = Item(
    "lcw/fig1",
    "stripes in the product of two random matrices: activation shift",
    "rows of Z = W A have means of their own (a horizontal stripe pattern)",
    run,
    smoke=Preset(Settings(), "5 s on 2 CPU cores"),
    cpu=Preset(Settings(draws=100), "10 s on 2 CPU cores", OF_100),
    full=Preset(Settings(draws=100), "10 s on 2 CPU cores", OF_100),
)
