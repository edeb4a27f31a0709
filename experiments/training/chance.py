"""A look at a run that ended at chance: what its network and its losses show."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from experiments.data.dataset import Dataset
from experiments.training.fit import outcome, start
from experiments.training.look import View, view_of
from experiments.training.run import AT_CHANCE, NOTHING_FOUND, Run
from experiments.training.trainer import Trainer
from jaxnorm import propagation, propagation_findings, read

#: The share of a layer's units that are dormant, above which the layer is named.
SHARE = 0.5

#: The deviation of the logits over the rows, relative to their size, that is rounding.
CONSTANT = 1e-5

#: Relative distances from the initial weights: below and above these the rate is named.
NEAR, FAR = 1e-3, 3.0

#: The rise of the loss, relative to that of the initial network.
ROSE = 1.05

#: Kinds of `jaxnorm.Finding` that are about a network's depth; the others are found here.
DEEP = ("branches", "size", "fading", "alike", "gradients")


def explained(run: Run, trainer: Trainer, dataset: Dataset) -> Run:
    """Returns a run at chance with what a look at it found in its outcome; others as they are.

    No network is looked at if several processes hold its parameters.
    """
    if run.outcome != AT_CHANCE or run.state is None or jax.process_count() > 1:
        return run
    view = view_of(trainer, run.state, dataset)
    X = trainer.placement.replicate(dataset.X_train)
    before = view_of(trainer, start(trainer, run.seed, X), dataset)
    found = not_finite(view) or [
        *constant_output(view, trainer.config.batch_size),
        *of_layers(view, trainer),
        *of_the_rate(run, dataset, view, before, trainer.config.learning_rate),
    ]
    return run._replace(outcome=f"{AT_CHANCE}, {'; '.join(found) or NOTHING_FOUND}")


def not_finite(view: View) -> list[str]:
    """Finds parameters and outputs that are not finite, which evaluation may have alone."""
    for name, tree in (
        ("its parameters are", view.weights),
        ("its output in training is", view.apply(view.weights, view.X)),
        ("its output in evaluation is", view.apply(view.weights, view.X, train=False)),
    ):
        if not all(np.isfinite(leaf).all() for leaf in map(np.asarray, jax.tree.leaves(tree))):
            return [f"{name} not finite"]
    return []


def constant_output(view: View, batch_size: int) -> list[str]:
    """Finds an output that is the same for all inputs, in evaluation or in batches of training."""
    if _is_constant(view.apply(view.weights, view.X, train=False)):
        return ["its output does not depend on its input"]
    rows = max(1, min(batch_size, len(view.X)))
    batches = view.X[: len(view.X) // rows * rows].reshape(-1, rows, *view.X.shape[1:])
    logits = jax.lax.map(lambda X: view.apply(view.weights, X), batches)
    if _is_constant(logits.reshape(-1, *logits.shape[2:])):
        return [f"in training, in batches of {rows}, its output does not depend on its input"]
    return []


def _is_constant(logits: Array) -> bool:
    values = np.asarray(logits, np.float64)
    return bool(np.ptp(values, 0).max() <= CONSTANT * np.abs(values).max())


def of_layers(view: View, trainer: Trainer) -> list[str]:
    """Finds a layer of constant output, dormant units, and what is off with the depth."""
    layout = trainer.context.kernels
    try:
        net = read(view.apply, view.weights, view.X)
        measured = propagation(net, loss=view.loss, layout=layout)
        findings = propagation_findings(net, loss=view.loss, layout=layout)
    except ValueError:  # Kernels in a loop, for example.
        return []
    signal = {name: float(value) for name, value in measured.items()}
    deep = [str(each) for each in findings if each.kind in DEEP]
    return [*_constant_layer(signal), *_dormant_layer(signal), *deep]


def _constant_layer(signal: dict[str, float]) -> list[str]:
    names = [x.removesuffix("/variance") for x in signal if x.endswith("/variance")]
    names = [
        x for x in names if not x.endswith("gradient_variance") and not signal[f"{x}/variance"]
    ]
    return [f"the output of {name} is the same in all rows" for name in names[:1]]


def _dormant_layer(signal: dict[str, float]) -> list[str]:
    shares = {x.removesuffix("/dormant"): y for x, y in signal.items() if x.endswith("/dormant")}
    name = max(shares, key=lambda name: shares[name], default="")
    if not name or shares[name] <= SHARE:
        return []
    return [f"{shares[name]:.0%} of the units of {name} are dormant"]


def of_the_rate(run: Run, dataset: Dataset, view: View, before: View, rate: float) -> list[str]:
    """Finds signs of a learning rate that is too high, or too low to leave the start."""
    first, last = float(before.loss(before.apply(before.weights, before.X))), run.curve[-1]
    high = f": the learning rate, {rate:g}, is too high"
    if last.train_loss > ROSE * first:
        return [f"the loss rose from {first:.3g} to {last.train_loss:.3g}{high}"]
    if learned := [each for each in run.curve if not outcome(each, dataset.y_train)]:
        best = min(learned, key=lambda each: each.train_loss)
        return [f"the loss had fallen to {best.train_loss:.3g} in epoch {best.epoch}{high}"]
    moved = _distance(view.weights, before.weights)
    if moved > FAR:
        return [f"its weights moved by {moved:.3g} times their initial size{high}"]
    if moved < NEAR:
        return [f"its weights moved by {moved:.1%}: the learning rate, {rate:g}, is too low"]
    return []


def _distance(weights: PyTree, before: PyTree) -> float:
    """Returns the norm of the change of the weights over the initial norm."""
    change = jax.tree.map(jnp.subtract, weights, before)
    return float(optax.tree.norm(change) / jnp.maximum(optax.tree.norm(before), 1e-30))
