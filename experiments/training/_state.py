"""What training carries from step to step, and what it measures."""

from typing import NamedTuple

from jaxtyping import Array, Float, Int, PyTree, UInt


class TrainState(NamedTuple):
    """Everything that one step changes; arrays only, so that any checkpoint library can keep it.

    Attributes:
        params: the raw parameters, reparametrization nodes and their noise included.
        model_state: the network's other variables: running statistics, random state.
        optimizer_state: the optimizer's.
        vectors: the singular vectors of spectrally normalized kernels; usually there are none.
        strengths: of gamma decay, one for each scale; usually there are none.
        seed: of the run; with ``epoch`` it determines every batch.
        epoch: the number of finished epochs.
        skipped: the updates that were left out because something was not finite.
    """

    params: PyTree
    model_state: PyTree
    optimizer_state: PyTree
    vectors: PyTree
    strengths: PyTree
    seed: UInt[Array, ""]
    epoch: Int[Array, ""]
    skipped: Int[Array, ""]


class Metrics(NamedTuple):
    """Means over samples: cross-entropy in nats, and the fraction that is classified correctly."""

    loss: Float[Array, "..."]
    accuracy: Float[Array, "..."]
