"""What the host sees of a run between two epochs, in one call."""

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
        kept: a copy of the state, since the next epoch consumes it.
        finite: whether all numbers of both are.
        norm: of all parameters.
        drift: of the constrained kernels from their set.
    """

    kept: TrainState
    finite: Bool[Array, ""]
    norm: Float[Array, ""]
    drift: Float[Array, ""]


def make_watch(method: Method, context: Context) -> Callable[[TrainState, StepMetrics], Watched]:
    """What there is to see of a method's runs."""

    def watch(state: TrainState, metrics: StepMetrics) -> Watched:
        norm, drift = optax.tree.norm(state.params), method.drift(state.params, context)
        return Watched(copied(state), all_finite((state, metrics)), norm, drift)

    return watch
