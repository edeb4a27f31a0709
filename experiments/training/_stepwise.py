"""An epoch as one call of a compiled step after the other, where a compiled loop is slow."""

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array

from experiments.training._ahead import Ahead
from experiments.training._epoch import IndexedStep, batch_order
from experiments.training._refresh import Refresh
from experiments.training._state import Metrics, TrainState


class Stepwise:
    """The same function as ``Ahead(make_epoch(...))``, without the scan.

    XLA on the CPU computes the gradients of convolutions inside a loop 10 to 50 times slower than
    outside (https://github.com/jax-ml/jax/issues/12868), which is far more than a call costs.

    Args:
        indexed_step: as `make_indexed_step` gives it.
        batch_size: the rows of one step.
        refresh: what is done between steps, if anything is.
    """

    def __init__(self, indexed_step: IndexedStep, batch_size: int, refresh: Refresh | None = None):
        self._order = Ahead(lambda state, X: batch_order(state, len(X), batch_size))
        self._step = Ahead(indexed_step, donate_argnums=0)
        self._due = None if refresh is None else refresh.is_due
        self._refresh = None if refresh is None else Ahead(refresh.run, donate_argnums=0)

    def compile(self, state: TrainState, X: Array, y: Array) -> None:
        """Compiles everything that a call needs."""
        self._step.compile(state, X, y, self._order(state, X), np.int32(0))
        if self._refresh is not None:
            self._refresh.compile(state, X, y, np.int32(0))

    def __call__(self, state: TrainState, X: Array, y: Array) -> tuple[TrainState, Metrics]:
        """The state after the epoch, and the mean metrics of its steps, which are fetched once."""
        order = self._order(state, X)
        collected = []
        if self._refresh is not None and state.epoch == 0:
            state = self._refresh(state, X, y, np.int32(-1))
        for index in range(len(order)):
            state, metrics = self._step(state, X, y, order, np.int32(index))
            collected.append(metrics)
            if self._refresh is not None and self._due(index, len(order)):
                state = self._refresh(state, X, y, np.int32(index))
        means = jax.tree.map(lambda *each: np.mean(each), *jax.device_get(collected))
        return state._replace(epoch=state.epoch + 1), means

    @property
    def compilations(self) -> int:
        """How often the step was compiled."""
        return self._step.compilations


def loops_are_slow(model: nnx.Module) -> bool:
    """Whether an epoch of this network should not be one compiled loop on this machine."""
    has_convolution = any(isinstance(module, nnx.Conv) for _, module in nnx.iter_modules(model))
    return has_convolution and jax.default_backend() == "cpu"
