"""A check, before anything is computed, that a network fits the memory."""

from collections.abc import Callable

import jax
from flax import nnx
from jaxtyping import Array, Key

from experiments.data.memory import free_memory, refuse_too_large
from experiments.training.devices import MODEL, Placement
from jaxnorm import parameter_count

#: The least bytes per parameter in training: the parameter, its gradient and its momentum.
BYTES = 3 * 4

#: ``key -> network`` with random parameters.
MakeNetwork = Callable[[Key[Array, ""]], nnx.Module]


def abstract_network(network: MakeNetwork, placement: Placement) -> nnx.Module:
    """Returns the structure of a network, without computing parameters.

    Raises:
        UserError: for more parameters than a device can hold.
    """
    model = nnx.eval_shape(lambda: network(jax.random.key(0)))
    count = parameter_count(nnx.state(model, nnx.Param))
    parts = 1 if placement.mesh is None else placement.mesh.shape[MODEL]
    refuse_too_large(
        f"training a network of {count:,} parameters",
        BYTES * count // parts,
        "take a smaller --width, --channels or --depth",
        device_memory(),
    )
    return model


def device_memory() -> int:
    """Returns the bytes of memory per device of this process; of the machine for a CPU."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit", 0) or free_memory()
