"""What is taken of a large sample between steps: population statistics and decay strengths."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Int

from experiments.methods import Recipe, decay_strengths, spread
from experiments.training._keys import run_keys
from experiments.training._placement import ONE_DEVICE, Placement
from experiments.training._state import TrainState
from jaxnorm import attach, effective
from jaxnorm.nnx import functionalize


class Refresh(NamedTuple):
    """A part of training that is not done at every step.

    Attributes:
        every: the steps between two times; the end of an epoch is one too.
        run: ``(state, X, y, index) -> state``, after the step of that index.
    """

    every: int
    run: Callable[[TrainState, Array, Array, Int[Array, ""]], TrainState]

    def is_due(self, index: int | Int[Array, ""], steps: int) -> bool | Bool[Array, ""]:
        """Whether it follows the step of that index, of so many in an epoch."""
        return ((index + 1) % self.every == 0) | (index + 1 == steps)


def make_refresh(
    model: nnx.Module, recipe: Recipe, batch_size: int, placement: Placement = ONE_DEVICE
) -> Refresh | None:
    """The refresh of a method; None if it has nothing to refresh.

    Args:
        model: the network, or its structure.
        recipe: the method.
        batch_size: of training.
        placement: the devices that a sample is spread over.
    """
    population, decay = recipe.population, recipe.gamma_decay
    if population is None:
        return None
    apply = functionalize(model).apply
    is_normalized = recipe.norm == "pn"
    see = functionalize(nnx.view(model, refresh=True)).apply if is_normalized else None

    def run(state: TrainState, X: Array, y: Array, index: Int[Array, ""]) -> TrainState:
        if see is not None:
            weights = effective(attach(state.params, state.vectors))
            rows = placement.spread_rows(spread(X, population.rows))
            _, model_state = see(weights, state.model_state, rows, train=False)
            state = state._replace(model_state=model_state)
        if decay is None:
            return placement.keep(state)
        batch = placement.spread_rows((spread(X, decay.rows), spread(y, decay.rows)))
        key = jax.random.fold_in(jax.random.fold_in(run_keys(state.seed)[3], state.epoch), index)

        def network(params, model_state, X):
            return apply(params, model_state, X, train=False)

        strengths = decay_strengths(
            network, state.params, state.model_state, batch, decay, batch_size, key
        )
        return placement.keep(state._replace(strengths=strengths))

    return Refresh(population.every, run)


def refreshed_first(refresh: Refresh | None, state: TrainState, X: Array, y: Array) -> TrainState:
    """The state at the start of an epoch: the first epoch's begins with a refresh."""
    if refresh is None:
        return state
    return jax.lax.cond(
        state.epoch == 0, lambda s: refresh.run(s, X, y, jnp.int32(-1)), lambda s: s, state
    )


def refreshed_after(
    refresh: Refresh | None, state: TrainState, X: Array, y: Array, index: Array, steps: int
) -> TrainState:
    """The state after the step of that index, refreshed if it is time."""
    if refresh is None:
        return state
    return jax.lax.cond(
        refresh.is_due(index, steps), lambda s: refresh.run(s, X, y, index), lambda s: s, state
    )
