"""Layers of scale and bias with noise, in place of batch normalization before a branch."""

import itertools
from collections.abc import Callable

from flax import nnx

from experiments.models.norms import MakeNorm
from jaxnorm.nnx import ScaleAndBias

#: Networks with a normalizer before each branch, not after each kernel.
PRE_ACTIVATION = ("resnet18", "wrn28x10", "transformer", "transformer-unscaled")


def noisy_scales(stddev: float, places: int | None = None) -> MakeNorm:
    """Returns a maker of scale-and-bias layers with noise.

    Args:
        stddev: sigma of every layer, or of the last layer.
        places: the number L of layers in the network, so that layer l has l / L of the noise; None
            for the same noise everywhere. Layers are made in the order in which they run.
    """
    numbers = itertools.count(1)

    def make(width: int, rngs: nnx.Rngs) -> nnx.Module:
        level = 1.0 if places is None else next(numbers) / places
        return ScaleAndBias(width, stddev=stddev * level, rngs=rngs)

    return make


def count_places(network: Callable[[MakeNorm], nnx.Module]) -> int:
    """Counts the normalizers that a network makes."""
    made: list[int] = []

    def make(width: int, rngs: nnx.Rngs) -> nnx.Module:
        made.append(width)
        return ScaleAndBias(width)

    nnx.eval_shape(lambda: network(make))
    return len(made)
