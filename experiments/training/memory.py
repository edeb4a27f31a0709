"""Whether a network fits the memory, asked before anything is computed."""

from collections.abc import Callable

import jax
from flax import nnx
from jaxtyping import Array, Key

from experiments.reading import free_memory, refuse_too_large
from experiments.training.devices import MODEL, Placement
from jaxnorm import parameter_count

#: The bytes of each parameter that training holds at least: itself, its gradient, its momentum.
BYTES = 3 * 4

#: ``key -> network``, with random parameters, or under `nnx.eval_shape` without.
MakeNetwork = Callable[[Key[Array, ""]], nnx.Module]


def abstract_network(network: MakeNetwork, placement: Placement) -> nnx.Module:
    """The structure of a network alone, without computing parameters.

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
    """The bytes of a device of this process; a processor's are the machine's."""
    statistics = jax.local_devices()[0].memory_stats() or {}
    return statistics.get("bytes_limit", 0) or free_memory()
