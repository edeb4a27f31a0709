"""Figure 3: without LCW the activations of a sigmoid network shrink to constants."""

import math
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from experiments.papers.item import Context, Report
from experiments.papers.lcw.network import LAYERS, activations, dataset, draw, sigmoid_trainer
from experiments.papers.measured import Measured, at_most, measured_report, near
from experiments.training.fit import start
from jaxnorm import gaussian_moments
from jaxnorm.theory.lcw import variance_gain


class Settings(NamedTuple):
    """Settings that the paper does not state."""

    depth: int = 10
    width: int = 256
    samples: int = 100


def run(settings: Settings, context: Context) -> Report:
    """Initializes a network, and measures the variances of its activations."""
    data = dataset(context.data_dir)
    trainer = sigmoid_trainer("none", settings.depth, data, width=settings.width)
    layers = activations(trainer, start(trainer, 0, data.X_train), data.X_train[: settings.samples])
    variances = {n: float(layers[n - 1].var(1).mean()) for n in LAYERS}
    measured_log = np.log10(variances[9] / variances[5])
    predicted_log = 4 * math.log10(_gain_at_the_fixed_point())
    with_lcw = float(variance_gain(jax.nn.sigmoid, 1.0)[0])
    name = "mean over units of the variance over samples"
    measured = [
        at_most(f"{name}, layer 9 over layer 1", variances[9] / variances[1], 1e-6),
        near(f"log10 of the {name}, layer 9 over layer 5", measured_log, predicted_log, 0.05),
        *(Measured(f"{name}, layer {n}", variances[n], with_lcw, None, "with LCW") for n in LAYERS),
    ]
    context.advance(1.0, "drawn")
    return measured_report(measured, {"activations": draw({"without LCW": layers})})


def _scaled_sigmoid(scale: float, x: Array) -> Array:
    return jax.nn.sigmoid(scale * x)


def _gain_at_the_fixed_point() -> float:
    """Returns the gain of the variance over samples per layer.

    It is the gain at the fixed point of the mean square. Glorot's square kernels have

    w

    ^2 = 1, so a pre-activation's mean square is that of the activations, q = E f(sqrt(q) Z)^2. The
    small variance over samples is multiplied by E f'(sqrt(q) Z)^2.

    Glorot's square kernels have

    w

    ^2 = 1, so a pre-activation's mean square is that of the activations, q = E f(sqrt(q) Z)^2. The
    small variance over samples is multiplied by E f'(sqrt(q) Z)^2.
    """
    q = 0.25
    for _ in range(10):
        mean, std = gaussian_moments(partial(_scaled_sigmoid, math.sqrt(q)))
        q = float(mean**2 + std**2)
    _, gain = variance_gain(jax.nn.sigmoid, math.sqrt(q))
    return float(gain)
