"""The steps of an epoch as calls of one compiled step, one after the other."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from experiments.training._ahead import Ahead, nothing
from experiments.training._refresh import Refresh
from experiments.training._state import Metrics, TrainState

#: How many steps the device is given before the host turns to something else: enough to be busy for
#: a while, and fewer than JAX lets be under way.
AHEAD = 8


class Loop:
    """A step and a refresh, compiled each on its own; both consume the state.

    Args:
        step: ``(state, *batch, index) -> (state, metrics)``.
        refresh: what is done between steps, if anything is.
    """

    def __init__(self, step: Callable[..., Any], refresh: Refresh | None):
        self.step = Ahead(step, donate_argnums=0)
        if refresh is not None:
            refresh = refresh._replace(run=Ahead(refresh.run, donate_argnums=0))
        self._refresh = refresh

    def compile(self, state: TrainState, X: Array, y: Array, batch: tuple[Array, ...]) -> None:
        """Compiles everything that a call needs."""
        self.step.compile(state, *batch, np.int32(0))
        if self._refresh is not None:
            self._refresh.run.compile(state, X, y, np.int32(0))

    def __call__(
        self,
        state: TrainState,
        X: Array,
        y: Array,
        batches: Iterable[tuple[Array, ...]],
        steps: int,
        meanwhile: Callable[[], None] = nothing,
    ) -> tuple[TrainState, Metrics]:
        """The state after the epoch, and the mean metrics of its steps, which are fetched once.

        Args:
            state: at the start of the epoch.
            X: the rows that a refresh sees.
            y: their labels.
            batches: what the step takes beside the state and the index.
            steps: their number.
            meanwhile: called once, when the device has the first steps to do.
        """
        refresh, collected = self._refresh, []
        if refresh is not None and int(state.epoch) == 0:
            state = refresh.run(state, X, y, np.int32(-1))
        for index, batch in enumerate(batches):
            state, metrics = self.step(state, *batch, np.int32(index))
            collected.append(metrics)
            if index + 1 == min(AHEAD, steps):
                meanwhile()
            if refresh is not None and refresh.is_due(index, steps):
                state = refresh.run(state, X, y, np.int32(index))
        means = jax.tree.map(lambda *each: np.mean(each), *jax.device_get(collected))
        return state._replace(epoch=state.epoch + 1), means
