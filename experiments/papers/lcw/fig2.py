"""Figure 2: activations of a sigmoid network with LCW, at the start and after training."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.papers.epochs import epochs
from experiments.papers.item import Context, Report
from experiments.papers.lcw.network import (
    LAYERS,
    Activations,
    activations,
    dataset,
    draw,
    sigmoid_trainer,
)
from experiments.papers.measured import Measured, at_least, measured_report, near
from jaxnorm.theory.lcw import variance_gain


class Settings(NamedTuple):
    """Settings that the paper does not state."""

    depth: int = 10
    width: int = 256
    samples: int = 100
    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 0.1


def run(settings: Settings, context: Context) -> Report:
    """Initializes, trains, and measures the activations before and after."""
    data = dataset(context.data_dir)
    names = ("width", "epochs", "batch_size", "learning_rate")
    changes = {name: getattr(settings, name) for name in names}
    trainer = sigmoid_trainer("lcw", settings.depth, data, **changes)
    x, states = data.X_train[: settings.samples], epochs(trainer, data, 0)
    before = activations(trainer, next(states)[0], x)
    context.advance(0.3, "initialized")
    *_, (state, _) = states
    after = activations(trainer, state, x)
    accuracy = float(trainer.evaluate(state, *jax.device_put(data[:2])).accuracy)
    measured = [
        *_at_the_start(before),
        *(
            at_least(f"after training, layer {n}: median over units of the deviation", spread, 0.05)
            for n, spread in ((n, np.median(after[n - 1].std(1))) for n in LAYERS)
        ),
        Measured("training accuracy", accuracy, 1.0, None, "perfect"),
    ]
    context.advance(1.0, "trained")
    return measured_report(
        measured, {"activations": draw({"at the start": before, "trained": after})}
    )


def _at_the_start(layers: Activations) -> list[Measured]:
    """Compares with a deviation of 0.208 around 0.5, which sigmoids make of unit variance."""
    forward, _ = variance_gain(jax.nn.sigmoid, 1.0)
    # Four standard errors of the mean of 256 units, whose means spread by up to 0.2.
    wanted: dict[Any, Any] = {np.std: (float(jnp.sqrt(forward)), 0.05), np.mean: (0.5, 0.1)}
    return [
        near(
            f"at the start, layer {n}: {measure.__name__} of all activations",
            measure(layers[n - 1]),
            *goal,
        )
        for measure, goal in wanted.items()
        for n in LAYERS
    ]
