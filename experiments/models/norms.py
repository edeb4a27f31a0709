"""Normalization layers by name, as makers ``(width, rngs=...) -> layer``."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flax import nnx

from experiments.models.dynamic import DynamicErf, DynamicTanh
from experiments.models.group_norm import GroupNorm, rms_norm
from experiments.models.rectifier import StandardizedRectifier
from jaxnorm.nnx import BatchNorm, PopulationNorm, Standardization

MakeNorm = Callable[..., nnx.Module]

#: Layers that normalize by a minibatch's statistics. The mean-only kind has no scale, because
#: its weights have one.
BATCH_NORMS: Mapping[str, MakeNorm] = {
    "bn": BatchNorm,
    "sl": Standardization,
    "mean-only-bn": partial(BatchNorm, use_variance=False, use_scale=False),
    "variance-only-bn": partial(BatchNorm, use_mean=False),
}


def as_input(arrays: Any, **_: Any) -> Any:
    """Casts arrays to the type of the first, the input; flax's layers would promote the input."""
    return [x if x is None else x.astype(arrays[0].dtype) for x in arrays]


NORMS: Mapping[str, MakeNorm] = {
    # Running statistics forget a tenth per step, the usual value.
    **{name: partial(make, momentum=0.9) for name, make in BATCH_NORMS.items()},
    # Statistics over all units of a sample, positions of an image included.
    "ln": partial(GroupNorm, one_group=True),
    "gn": GroupNorm,
    "rms": rms_norm,
    "dyt": DynamicTanh,
    "derf": DynamicErf,
    "pn": PopulationNorm,
    "standardized-rectifier": StandardizedRectifier,
    # Flax's own layers, for a benchmark.
    "nnx.BatchNorm": partial(nnx.BatchNorm, promote_dtype=as_input),
    "nnx.LayerNorm": partial(nnx.LayerNorm, promote_dtype=as_input),
}


def maker(name: str | None, groups: int = 1) -> MakeNorm | None:
    """Returns the maker of a name, or None; batch statistics are taken in ``groups`` groups."""
    if name is None:
        return None
    return partial(NORMS[name], groups=groups) if name in BATCH_NORMS else NORMS[name]
