"""An epoch as one call of one compiled function."""

from collections.abc import Callable

from jaxtyping import Array

from experiments.training._ahead import Ahead, nothing
from experiments.training._epoch import RunEpoch
from experiments.training._state import Metrics, TrainState


class Scanned(Ahead):
    """An epoch ``(state, X, y) -> (state, mean metrics)`` that the host does not wait for.

    Args:
        epoch: as `make_epoch` gives it.
    """

    def __init__(self, epoch: RunEpoch):
        # The old state's memory becomes the new one's.
        super().__init__(epoch, donate_argnums=0)

    def __call__(
        self, state: TrainState, X: Array, y: Array, meanwhile: Callable[[], None] = nothing
    ) -> tuple[TrainState, Metrics]:
        """The state after the epoch, and the mean metrics of its steps.

        Args:
            state: at the start of the epoch; it is consumed.
            X: the training rows.
            y: their labels.
            meanwhile: called once, when the device is at work.
        """
        result: tuple[TrainState, Metrics] = super().__call__(state, X, y)
        meanwhile()
        return result
