"""Section 3.1, Eq. 3: the signal that a layer keeps with c = 2, and the c that keeps all of it."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from experiments.analysis.picture import draw_lines, new_figure
from experiments.papers.item import Context, Item, Preset, Report
from experiments.papers.measured import measured_report, near
from jaxnorm import project_to_sphere

#: The squared radius c at which a layer of centred weights keeps the second moment of a Gaussian:
#: c (E f^2 - (E f)^2) = c (1/2 - 1/(2 pi)) = 1 for the rectifier f.
KEEPING = 2 * math.pi / (math.pi - 1)


class Moments(NamedTuple):
    """Second moments of each layer, from the first to the last.

    Attributes:
        forward: the mean square of its pre-activations.
        backward: the mean square of a gradient at them, which is 1 at the last layer's output.
    """

    forward: Float[Array, " layers"]
    backward: Float[Array, " layers"]


class Settings(NamedTuple):
    """Settings of ours, since the paper derives Eq. 3 and measures nothing; its CNN's depth."""

    depth: int = 9
    width: int = 512
    samples: int = 64
    seeds: int = 16


def rectified_chain(
    settings: Settings, squared_radius: float, centered: bool, key: Array
) -> Moments:
    """Runs forward and backward through layers z -> W relu(z) of random weights.

    Each unit's weights have ||w||^2 = c, and sum to zero if ``centered``. The first
    pre-activations, and the gradient behind the last layer, are standard normal.
    """
    weights_key, start_key, end_key = jax.random.split(key, 3)
    random = jax.random.normal(weights_key, (settings.depth, settings.width, settings.width))
    weights = project_to_sphere(random, -1, squared_radius, centered=centered)
    shape = settings.samples, settings.width
    start, end = (jax.random.normal(k, shape) for k in (start_key, end_key))

    def forward(z: Array, weight: Array) -> tuple[Array, Array]:
        return jax.nn.relu(z) @ weight.T, z

    _, z = jax.lax.scan(forward, start, weights)

    def backward(gradient: Array, layer: tuple[Array, Array]) -> tuple[Array, Array]:
        weight, z = layer
        gradient = jnp.where(z > 0, gradient @ weight, 0.0)
        return gradient, gradient

    _, gradients = jax.lax.scan(backward, end, (weights, z), reverse=True)
    return Moments(jnp.square(z).mean((1, 2)), jnp.square(gradients).mean((1, 2)))


def gain(moments: Float[Array | np.ndarray, "seeds layers"]) -> float:
    """Returns the factor of moments per layer, the geometric mean over layers and seeds."""
    ratios = np.log(moments[:, -1] / moments[:, 0]) / (moments.shape[-1] - 1)
    return float(np.exp(ratios.mean()))


#: (c, centred) by name, and the theory's gains of a layer, forwards and backwards: c / 2 or
#: c (1/2 - 1/(2 pi)), and c / 2.
CASES = {
    "c = 2, not centred": (2.0, False, 1.0, 1.0),
    "c = 2, centred": (2.0, True, 2.0 / KEEPING, 1.0),
    f"c = {KEEPING:.2f}, centred": (KEEPING, True, 1.0, KEEPING / 2),
}


def run(settings: Settings, context: Context) -> Report:
    """Measures the moments of each case through all layers, and draws them."""
    keys = jax.random.split(jax.random.key(0), settings.seeds)
    findings, figure = [], new_figure(2)
    lines: dict[str, dict[str, Any]] = {field: {} for field in Moments._fields}
    for index, (name, (radius, centered, forward, backward)) in enumerate(CASES.items(), 1):
        chain = jax.vmap(partial(rectified_chain, settings, radius, centered))
        moments = jax.tree.map(np.asarray, jax.jit(chain)(keys))
        kept, sent = gain(moments.forward), gain(moments.backward[:, ::-1])
        findings += [
            near(f"second moment that a layer keeps, {name}", kept, forward, 0.05),
            near(f"the same of gradients, backwards, {name}", sent, backward, 0.05),
        ]
        for field, values in moments._asdict().items():
            lines[field][name] = values.mean(0)
        context.advance(index / len(CASES), name)
    for axes, (field, by_case) in zip(figure.axes, lines.items(), strict=True):
        draw_lines(axes, by_case, "o-")
        axes.set(xlabel="layer", ylabel=f"mean square, {field}s", yscale="log")
    return measured_report(findings, {"signal": figure})


DERIVED = "the paper derives it and measures nothing; sizes are ours"

SIGNAL = Item(
    "cwo/signal",
    "what of the signal a layer of constrained weights keeps",
    "c = 2 keeps the variance from layer to layer (Eqs. 3 and 4)",
    run,
    smoke=Preset(Settings(width=256, samples=32, seeds=4), "5 s on 2 CPU cores", "256 units"),
    cpu=Preset(Settings(), "15 s on 2 CPU cores", DERIVED),
    full=Preset(Settings(width=2048), "2 min on 2 CPU cores", DERIVED),
)
