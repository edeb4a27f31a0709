"""An epoch as one call of a compiled step after the other, where a compiled loop is slow."""

from collections.abc import Callable

import jax
from flax import nnx
from jaxtyping import Array

from experiments.training._ahead import Ahead, nothing
from experiments.training._epoch import IndexedStep, batch_order
from experiments.training._loop import Loop
from experiments.training._refresh import Refresh
from experiments.training._state import Metrics, TrainState


class Stepwise:
    """The same function as ``Scanned(make_epoch(...))``, without the scan.

    XLA on the CPU computes the gradients of convolutions inside a loop 10 to 50 times slower than
    outside (https://github.com/jax-ml/jax/issues/12868), which is far more than a call costs.

    Args:
        indexed_step: as `make_indexed_step` gives it.
        batch_size: the rows of one step.
        refresh: what is done between steps, if anything is.
    """

    def __init__(self, indexed_step: IndexedStep, batch_size: int, refresh: Refresh | None = None):
        self._order = Ahead(lambda state, X: batch_order(state, len(X), batch_size))
        self._loop = Loop(indexed_step, refresh)

    def compile(self, state: TrainState, X: Array, y: Array) -> None:
        """Compiles everything that a call needs."""
        self._loop.compile(state, X, y, (X, y, self._order(state, X)))

    def __call__(
        self, state: TrainState, X: Array, y: Array, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, Metrics]:
        """The state after the epoch, and the mean metrics of its steps."""
        order = self._order(state, X)
        return self._loop(state, X, y, [(X, y, order)] * len(order), len(order), meanwhile)

    @property
    def compilations(self) -> int:
        """How often the step was compiled."""
        return self._loop.step.compilations


def loops_are_slow(model: nnx.Module) -> bool:
    """Whether an epoch of this network should not be one compiled loop on this machine."""
    has_convolution = any(isinstance(module, nnx.Conv) for _, module in nnx.iter_modules(model))
    return has_convolution and jax.default_backend() == "cpu"
