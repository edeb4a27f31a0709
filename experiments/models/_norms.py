"""Normalization layers by name, as makers ``(width, rngs) -> layer``."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from flax import nnx

MakeNorm = Callable[[int, nnx.Rngs], nnx.Module]

#: The groups of group normalization, as in the papers.
GROUPS = 16


def batch_norm(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Batch normalization; running statistics forget a tenth a step, as is usual elsewhere."""
    return nnx.BatchNorm(width, momentum=0.9, rngs=rngs)


def layer_norm(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Layer normalization over all of a sample's units, positions of an image included."""
    return nnx.GroupNorm(width, num_groups=1, rngs=rngs)


def group_norm(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Group normalization in 16 groups, or as many of two units or more as divide the width.

    A group of one unit of a dense layer would be normalized to zero.
    """
    most = max(1, min(GROUPS, width // 2))
    groups = next(n for n in range(most, 0, -1) if width % n == 0)
    return nnx.GroupNorm(width, num_groups=groups, rngs=rngs)


def standardization(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """The standardization layer: batch normalization without scale and bias, of activations."""
    return nnx.BatchNorm(width, momentum=0.9, use_scale=False, use_bias=False, rngs=rngs)


NORMS: Mapping[str, MakeNorm] = MappingProxyType(
    {"bn": batch_norm, "ln": layer_norm, "gn": group_norm, "sl": standardization}
)
