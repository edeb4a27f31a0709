"""Figure 4: variances through 20 sigmoid layers, forwards and backwards."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from experiments.analysis.picture import new_figure
from experiments.papers.data import data_note
from experiments.papers.item import Context, Finding, Item, Preset, Report
from experiments.papers.lcw.sigmoid import DIGITS, dataset, draw_boxes
from experiments.papers.measured import at_most, compared, measured_report, near
from jaxnorm.theory.lcw import gradient_gain

#: A switch that may be traced, so that one program runs both ways.
Switch = bool | Bool[Array, ""]


class Chain(NamedTuple):
    """Pre-activations and gradients of the layers of a chain, from the first to the last.

    Attributes:
        preactivations: z of each layer.
        gradients: the loss's gradients with respect to z.
    """

    preactivations: Float[Array, "... layers samples units"]
    gradients: Float[Array, "... layers samples units"]


def sigmoid_chain(
    key: Array,
    inputs: Float[Array, "samples features"],
    depth: int,
    *,
    constrained: Switch,
    pooled: Switch = True,
    width: int | None = None,
    classes: int = 10,
) -> Chain:
    """Runs forward and backward through ``depth`` sigmoid layers and a linear classifier.

    Normal random kernels, centered if ``constrained``, are rescaled by one factor per layer to unit
    variance on the samples: the variance of all pre-activations together, units' means included, if
    ``pooled``; otherwise the average of the units' variances. The loss is the cross-entropy with
    random labels. A ``width`` of None is that of the inputs.
    """
    samples, features = inputs.shape
    width = width or features
    first, hidden, head, labels = jax.random.split(key, 4)
    targets = jax.random.randint(labels, (samples,), 0, classes)
    kernels = jax.random.normal(hidden, (depth - 1, width, width))

    def layer(a: Array, kernel: Array) -> Array:
        z = a @ jnp.where(constrained, kernel - kernel.mean(0, keepdims=True), kernel)
        variance = jnp.where(pooled, z.var(), z.var(0).mean())
        # A constant factor: the gradient is the network's, not that of its initialization.
        return z / jax.lax.stop_gradient(jnp.sqrt(variance))

    def loss(offsets: Array) -> Any:
        def step(a: Array, xs: tuple[Array, Array]) -> tuple[Array, Array]:
            kernel, offset = xs
            z = layer(a, kernel) + offset
            return jax.nn.sigmoid(z), z

        a, z = step(inputs, (jax.random.normal(first, (features, width)), offsets[0]))
        a, hidden_z = jax.lax.scan(step, a, (kernels, offsets[1:]))
        logits = layer(a, jax.random.normal(head, (width, classes)))
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], 1)
        return -chosen.mean(), jnp.concatenate([z[None], hidden_z])

    gradients, z = jax.grad(loss, has_aux=True)(jnp.zeros((depth, samples, width)))
    return Chain(z, gradients)


def pooled_ratio(gradients: Float[Array, "... layers samples units"]) -> Float[Array, "..."]:
    """Returns the variance of the first layer's gradients over that of the last layer's."""
    # Relative to the largest, because squares of a vanished gradient underflow in float32.
    first, last = gradients[..., 0, :, :], gradients[..., -1, :, :]
    return jnp.square(_deviation(first) / _deviation(last))


def _deviation(x: Float[Array, "... samples units"]) -> Float[Array, "..."]:
    largest = jnp.abs(x).max((-2, -1), keepdims=True)
    safe = jnp.where(largest > 0, largest, 1)
    return (x / safe).std((-2, -1)) * safe.squeeze((-2, -1))


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
    """Runs the chain for each case and seed, and draws that of the first seed."""
    rows = dataset(context.data_dir).X_train[: settings.samples]
    x, depth, width = jnp.asarray(rows.reshape(len(rows), -1)), settings.depth, settings.width
    keys = jax.random.split(jax.random.key(0), settings.seeds)

    def chain(key: Array, constrained: Switch, pooled: Switch) -> Chain:
        return sigmoid_chain(key, x, depth, constrained=constrained, pooled=pooled, width=width)

    over_seeds = jax.vmap(lambda k, c, p: pooled_ratio(chain(k, c, p).gradients), (0, None, None))
    ratio_of, ratios = jax.jit(over_seeds), {}
    figure = new_figure(len(CASES), 2, width=4.8, height=3.4)
    for column, (name, switches) in enumerate(CASES.items()):
        ratios[name] = np.asarray(ratio_of(keys, *switches), np.float64)
        preactivations, gradients = map(np.asarray, chain(keys[0], *switches))
        top, bottom = figure.axes[column], figure.axes[column + len(CASES)]
        draw_boxes(top, preactivations, "layer", "pre-activation")
        top.set_title(name)
        draw_boxes(bottom, gradients, "layer", "gradient")
        bottom.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        context.advance((column + 1) / len(CASES), name)
    notes = [data_note(context.data_dir, ["cifar10"])]
    return measured_report(_compare(ratios, depth), {"variances": figure}, notes)


def _compare(ratios: dict[str, Float[np.ndarray, " seeds"]], depth: int) -> list[Finding]:
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
        compared(f"the same, {BY_UNIT}, geometric mean", mean[BY_UNIT], 1.0, source="no change"),
    ]


FIG4 = Item(
    "lcw/fig4",
    "pre-activations and their gradients through 20 sigmoid layers",
    "gradients vanish with standard weights and do not with LCW, where they grow slightly",
    run,
    smoke=Preset(Settings(width=64, seeds=2), "10 s on 2 CPU cores", "width 64, digits"),
    cpu=Preset(Settings(), "20 s on 2 CPU cores", DIGITS),
    full=Preset(Settings(seeds=32), "1 min on 2 CPU cores; CIFAR-10 in --data-dir"),
)
