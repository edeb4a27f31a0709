"""The optimizer of a method: the user's own, edited by the method's parts."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from experiments.methods.kernels import is_axes
from experiments.methods.method import Method
from experiments.methods.part import Context
from jaxnorm import Layout

MOMENTUM = 0.9

#: ``step -> learning rate``.
Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]


class OptimizerSettings(NamedTuple):
    """The optimizer that all methods of a comparison share.

    Attributes:
        name: sgd (with momentum) or adam.
        learning_rate: the initial one.
        weight_decay: on kernels.
        drops: (fraction of training, factor on the initial rate) from then on; empty for half a
            cosine to 0.
    """

    name: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.05
    weight_decay: float = 1e-3
    drops: tuple[tuple[float, float], ...] = ()


def make_optimizer(
    method: Method,
    settings: OptimizerSettings,
    steps: int | Int[Array, ""],
    context: Context,
    seed: Any = 0,
) -> optax.GradientTransformation:
    """SGD with momentum 0.9, or Adam, on a schedule, with the method's edits around it.

    Args:
        method: what edits it.
        settings: what all methods share.
        steps: the length of the schedule, at whose end the learning rate is 0.
        context: which kernels are constrained, and which there are.
        seed: of noise that is drawn once a step; it may be traced, and only ``init`` reads it.
    """
    base = base_optimizer(settings, schedule_of(settings, steps), context.kernels)
    return method.optimizer(base, context, seed)


def base_optimizer(
    settings: OptimizerSettings, schedule: Schedule, kernels: Layout
) -> optax.GradientTransformation:
    """The user's own optimizer; its weight decay reaches kernels alone."""

    def decayed(params: PyTree) -> PyTree:
        axes = kernels(params)
        return jax.tree.map(lambda own: own is not None, axes, is_leaf=is_axes)

    if settings.name == "adam":
        return optax.adamw(schedule, weight_decay=settings.weight_decay, mask=decayed)
    decay = optax.add_decayed_weights(settings.weight_decay, mask=decayed)
    return optax.chain(decay, optax.sgd(schedule, momentum=MOMENTUM))


def schedule_of(settings: OptimizerSettings, steps: int | Int[Array, ""]) -> Schedule:
    """The learning rate at each step; with drops, steps and rate may be traced."""
    if not settings.drops:
        return cosine(settings.learning_rate, steps)
    fractions = jnp.array([fraction for fraction, _ in settings.drops])
    starts = jnp.round(fractions * jnp.asarray(steps, jnp.float32)).astype(jnp.int32)
    rates = settings.learning_rate * jnp.array([1.0, *(factor for _, factor in settings.drops)])
    return lambda step: rates[(step >= starts).sum()]


def cosine(peak: float, steps: int) -> Schedule:
    """Half a cosine from ``peak`` at step 0 to 0 at step ``steps``."""
    schedule = optax.cosine_decay_schedule(peak, steps)
    # optax multiplies the count by floats, which strict dtype promotion does not allow of integers.
    return lambda step: schedule(step.astype(jnp.float32))
