"""Normalization layers by name, as makers ``(width, rngs) -> layer``."""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from flax import nnx

from experiments.models.dynamic import DynamicErf, DynamicTanh
from experiments.models.rectifier import StandardizedRectifier
from jaxnorm.nnx import BatchNorm, PopulationNorm

MakeNorm = Callable[[int, nnx.Rngs], nnx.Module]

#: The groups of group normalization, as in the papers.
GROUPS = 16

#: The layers that take statistics of the batch, by the options of `jaxnorm.nnx.BatchNorm`. Of the
#: mean-only kind the weights bring the scale.
BATCH_NORMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "bn": {},
        "sl": {"use_scale": False, "use_bias": False},
        "mean-only-bn": {"use_variance": False, "use_scale": False},
        "variance-only-bn": {"use_mean": False},
    }
)


def batch_norm(width: int, rngs: nnx.Rngs, **options: Any) -> nnx.Module:
    """Batch normalization; running statistics forget a tenth a step, as is usual elsewhere."""
    return BatchNorm(width, momentum=0.9, rngs=rngs, **options)


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


def rms_norm(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Root mean square normalization over the last axis."""
    return nnx.RMSNorm(width, rngs=rngs)


def dynamic_tanh(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Dynamic Tanh; its parameters are not random."""
    return DynamicTanh(width)


def dynamic_erf(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Derf; its parameters are not random."""
    return DynamicErf(width)


def population_norm(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Population normalization; training refreshes its statistics."""
    return PopulationNorm(width, rngs=rngs)


def standardized_rectifier(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """A rectifier that is normalized by its own moments: normalizer and activation in one."""
    return StandardizedRectifier(width, rngs=rngs)


def _flax(layer: Callable[..., nnx.Module]) -> MakeNorm:
    """A layer of flax, which a benchmark has beside ours; its output is of its input's type."""

    def as_input(arrays: Sequence[Any], **_: Any) -> Sequence[Any]:
        return [x if x is None else x.astype(arrays[0].dtype) for x in arrays]

    return lambda width, rngs: layer(width, promote_dtype=as_input, rngs=rngs)


NORMS: Mapping[str, MakeNorm] = MappingProxyType(
    {
        **{name: functools.partial(batch_norm, **kind) for name, kind in BATCH_NORMS.items()},
        "ln": layer_norm,
        "gn": group_norm,
        "rms": rms_norm,
        "dyt": dynamic_tanh,
        "derf": dynamic_erf,
        "pn": population_norm,
        "standardized-rectifier": standardized_rectifier,
        "nnx.BatchNorm": _flax(nnx.BatchNorm),
        "nnx.LayerNorm": _flax(nnx.LayerNorm),
    }
)


def maker(name: str | None, groups: int = 1) -> MakeNorm | None:
    """The maker of a name, or None; batch statistics are taken of so many parts of the batch."""
    if name is None:
        return None
    make: Callable[..., nnx.Module] = NORMS[name]
    return functools.partial(make, groups=groups) if name in BATCH_NORMS else make
