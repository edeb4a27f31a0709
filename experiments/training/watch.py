"""The host's view of a run between two epochs, computed in one call."""

from collections.abc import Callable
from typing import NamedTuple

import optax
from jaxtyping import Array, Bool, Float

from experiments.methods.method import Method
from experiments.methods.part import Context
from experiments.training.nonfinite import all_finite, copied
from experiments.training.state import StepMetrics, TrainState


class Watched(NamedTuple):
    """A state and the metrics of the epoch before it.

    Attributes:
        kept: a copy of the state, because the next epoch consumes it.
        finite: True if all numbers of the state and the metrics are finite.
        norm: the norm of all parameters.
        drift: the distance of the constrained kernels from their set.
    """

    kept: TrainState
    finite: Bool[Array, ""]
    norm: Float[Array, ""]
    drift: Float[Array, ""]


def make_watch(method: Method, context: Context) -> Callable[[TrainState, StepMetrics], Watched]:
    """Makes the function ``(state, metrics) -> Watched`` of a method's runs."""

    def watch(state: TrainState, metrics: StepMetrics) -> Watched:
        norm, drift = optax.tree.norm(state.params), method.drift(state.params, context)
        return Watched(copied(state), all_finite((state, metrics)), norm, drift)

    return watch
