"""The optimizer of a method: the user's own, edited so that parameters stay on the set."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

import jaxnorm
from experiments.methods._recipe import Recipe
from jaxnorm import Layout

#: The leaves that weight decay reaches, by the last part of their path.
DECAYED = ("kernel", "direction", "coordinates")

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
    recipe: Recipe,
    settings: OptimizerSettings,
    steps: int | Int[Array, ""],
    layout: Layout,
    seed: int | Int[Array, ""] = 0,
) -> optax.GradientTransformation:
    """SGD with momentum 0.9, or Adam, on a cosine schedule, with the recipe's edits around it.

    Args:
        recipe: the method.
        settings: what all methods share.
        steps: the length of the schedule, at whose end the learning rate is 0.
        layout: which kernels are constrained.
        seed: of noise that is drawn once a step; it may be traced, and only ``init`` reads it.
    """
    parts = [_base(settings, schedule_of(settings, steps))]
    if recipe.centered and settings.name == "adam":
        # Under SGD, momentum and decay the edit of the update below does the same work alone.
        parts.insert(0, jaxnorm.centered_gradient(layout))
    if recipe.squared_radius is not None:
        parts.append(
            jaxnorm.sphere_projection(
                layout=layout, squared_radius=recipe.squared_radius, centered=recipe.centered
            )
        )
    elif recipe.centered:
        # The projection on the set of zero-mean weights: centring the update keeps them there.
        parts.append(jaxnorm.centered_gradient(layout))
    clip = recipe.clip if recipe.variance_constancy is None else recipe.variance_constancy.clip
    if clip is not None:
        parts.insert(0, jaxnorm.clip_by_layer_norm(clip))
    optimizer = optax.chain(*parts)
    if not recipe.noisy_parameters:
        return optimizer
    return jaxnorm.noise_injection(optimizer, recipe.noise, seed=seed)


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


def decayed(params: PyTree) -> PyTree:
    """True at kernels and what is shaped as they are, False at scales, biases and the rest."""

    def is_kernel(path: tuple[jax.tree_util.KeyEntry, ...], _: Array) -> bool:
        return jax.tree_util.keystr(path[-1:], simple=True) in DECAYED

    return jax.tree_util.tree_map_with_path(is_kernel, params)


def _base(settings: OptimizerSettings, schedule: Schedule) -> optax.GradientTransformation:
    decay = settings.weight_decay
    if settings.name == "adam":
        return optax.adamw(schedule, weight_decay=decay, mask=decayed)
    return optax.chain(
        optax.add_decayed_weights(decay, mask=decayed), optax.sgd(schedule, momentum=MOMENTUM)
    )
