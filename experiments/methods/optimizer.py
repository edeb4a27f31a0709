"""The optimizer of a method: the user's, edited by the method's parts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from jaxtyping import Array, Float, PyTree
from optax.contrib import MuonDimensionNumbers

from experiments.config import Config
from experiments.methods.clipping import clip_layers
from experiments.methods.method import Method
from experiments.methods.part import Context, Optimizer, Schedule
from jaxnorm import Layout

MOMENTUM = 0.9

#: The root mean square of Muon's steps at a rate of 1, as of Adam's steps (Liu et al. 2025).
MUON_RMS = 0.2


class Rates(NamedTuple):
    """The learning rate and the weight decay of a run, in the state of its optimizer.

    So trainings at several of them are one program.
    """

    learning_rate: Float[Array, ""] | np.float32
    weight_decay: Float[Array, ""] | np.float32


def rates_of(config: Config) -> Rates:
    """Returns the rate and the decay of some settings."""
    return Rates(np.float32(config.learning_rate), np.float32(config.weight_decay))


def with_rates(state: PyTree, rates: Rates) -> PyTree:
    """Returns an optimizer's state with another rate and decay."""
    return jax.tree.map(
        lambda entry: rates if isinstance(entry, Rates) else entry,
        state,
        is_leaf=lambda entry: isinstance(entry, Rates),
    )


def make_optimizer(
    method: Method, config: Config, steps: int, context: Context, seed: Any = 0
) -> Optimizer:
    """Makes SGD with momentum 0.9, Adam or Muon, on a schedule, with the method's edits.

    Args:
        method: the method that edits the optimizer.
        config: the settings that all methods share.
        steps: the length of the schedule, at whose end the learning rate is 0.
        context: the layouts of all and of constrained kernels.
        seed: the seed of noise drawn once per step; it may be traced, and only ``init`` reads it.
    """
    schedule = schedule_of(config, steps)
    base = base_optimizer(config, factor_of(config, steps), context.kernels)
    if config.clip_layers is not None and not method.clips:
        base = optax.chain(clip_layers(config.clip_layers), base)
    return method.optimizer(base, context._replace(schedule=schedule), seed)


def base_optimizer(config: Config, factor: Schedule, kernels: Layout) -> Optimizer:
    """Makes the user's optimizer, whose state begins with `Rates`.

    Args:
        config: the optimizer, and the rate and the decay that ``init`` puts into the state.
        factor: the factor on the rate at each step.
        kernels: the layout of the kernels, which alone decay.
    """

    def at(rates: Rates) -> Optimizer:
        def schedule(step: Array) -> Array:
            return rates.learning_rate * factor(step)

        return optimizer_at(config, schedule, rates.weight_decay, kernels)

    def init(params: PyTree) -> PyTree:
        rates = Rates(*map(jnp.asarray, rates_of(config)))
        return rates, at(rates).init(params)

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        rates, inner = state
        updates, inner = at(rates).update(updates, inner, params)
        return updates, (rates, inner)

    return optax.GradientTransformation(init, update)


def optimizer_at(config: Config, schedule: Schedule, decay: Any, kernels: Layout) -> Optimizer:
    """Makes the user's optimizer at a rate and a decay."""
    if config.optimizer == "adam":
        return optax.adamw(schedule, weight_decay=decay, mask=decayed(kernels))
    if config.optimizer == "muon":
        return muon(schedule, decay, kernels)
    decaying = optax.add_decayed_weights(decay, mask=decayed(kernels))
    return optax.chain(decaying, optax.sgd(schedule, momentum=MOMENTUM))


def muon(schedule: Schedule, decay: Any, kernels: Layout) -> Optimizer:
    """Makes Muon for kernels, each as one matrix, and Adam for other parameters.

    Steps have Adam's usual root mean square, so that the same learning rates suit both.
    """

    def matrices(params: PyTree) -> PyTree:
        def numbers(leaf: Any, axes: tuple[int, ...] | None) -> MuonDimensionNumbers | None:
            if axes is None or _is_masked(leaf):
                return None
            others = tuple(axis for axis in range(-leaf.ndim, 0) if axis not in axes)
            return MuonDimensionNumbers(axes, others)

        return jax.tree.map(numbers, params, kernels(params), is_leaf=_is_masked)

    return optax.contrib.muon(
        schedule,
        weight_decay=decay,
        weight_decay_mask=decayed(kernels),
        muon_weight_dimension_numbers=matrices,
        consistent_rms=MUON_RMS,
    )


def schedule_of(config: Config, steps: int) -> Schedule:
    """Makes the schedule of the learning rate, for parts that set the length of steps."""
    factor = factor_of(config, steps)
    return lambda step: config.learning_rate * factor(step)


def factor_of(config: Config, steps: int) -> Schedule:
    """Makes the schedule of the factor on the learning rate.

    With a rate decay it is (1 - decay)^step, for any number of steps. In a warm-up it rises from 0;
    half a cosine begins after it.
    """
    if not config.warm_up:
        return _falling(config, steps)
    rise = max(1, int(config.warm_up * steps))
    if config.rate_decay or config.rate_schedule:
        falling = _falling(config, steps)
        return lambda step: falling(step) * jnp.minimum(1, step.astype(jnp.float32) / rise)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, rise, steps)
    return lambda step: schedule(step.astype(jnp.float32))


def _falling(config: Config, steps: int) -> Schedule:
    """Makes the schedule without a warm-up."""
    if config.rate_decay:
        kept = jnp.float32(1 - config.rate_decay)
        return lambda step: kept ** step.astype(jnp.float32)
    if not config.rate_schedule:
        return cosine(steps)
    fractions = jnp.array([fraction for fraction, _ in config.rate_schedule])
    starts = jnp.round(fractions * jnp.asarray(steps, jnp.float32)).astype(jnp.int32)
    factors = jnp.array([1.0, *(factor for _, factor in config.rate_schedule)])
    return lambda step: factors[(step >= starts).sum()]


def cosine(steps: int) -> Schedule:
    """Makes half a cosine from 1 at step 0 to 0 at step ``steps``."""
    schedule = optax.cosine_decay_schedule(1.0, steps)
    # optax multiplies the count by floats; strict dtype promotion does not allow integers.
    return lambda step: schedule(step.astype(jnp.float32))


def decayed(kernels: Layout) -> Callable[[PyTree], PyTree]:
    """Makes the mask of weight decay: ``params -> True at kernels, False elsewhere``."""

    def mask(params: PyTree) -> PyTree:
        return jax.tree.map(
            lambda leaf, axes: axes is not None, params, kernels(params), is_leaf=_is_masked
        )

    return mask


def _is_masked(entry: Any) -> bool:
    """Returns True if another optimizer has the leaf."""
    return isinstance(entry, optax.MaskedNode)
