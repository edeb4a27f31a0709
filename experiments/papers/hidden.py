"""Pre-activations of the hidden layers of a fully connected network."""

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from experiments.training.evaluate import evaluated_weights
from experiments.training.state import TrainState
from experiments.training.trainer import Trainer
from jaxnorm import collect_preactivations


def preactivations(
    trainer: Trainer, state: TrainState, X: Float[Array | np.ndarray, "rows *shape"]
) -> list[Float[Array, "rows units"]]:
    """Returns the pre-activations of each hidden layer in evaluation, from the first layer on."""

    def evaluated(params: PyTree, X: Array) -> tuple[Array, PyTree]:
        return trainer.context.functional.apply(params, state.model_state, X, train=False)

    @jax.jit
    def hidden(params: PyTree, X: Array) -> dict[str, Array]:
        return collect_preactivations(evaluated, params, X, layout=trainer.layout)[1]

    layers = hidden(evaluated_weights(trainer.method, state), X)
    # In the order of the network's blocks, because a dict that left jit is sorted by name.
    names = (name for name in layers if name.startswith("blocks/"))
    return [layers[name] for name in sorted(names, key=lambda name: int(name.split("/")[1]))]
