"""Normalization layers by name, as makers ``(width, rngs=...) -> layer``."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flax import nnx

from experiments.models.dynamic import DynamicErf, DynamicTanh
from experiments.models.rectifier import StandardizedRectifier
from jaxnorm.nnx import BatchNorm, PopulationNorm

MakeNorm = Callable[..., nnx.Module]

#: The groups of group normalization, as in the papers.
GROUPS = 16

#: The layers that take statistics of the batch, by the options of `jaxnorm.nnx.BatchNorm`. Of the
#: mean-only kind the weights bring the scale.
BATCH_NORMS: Mapping[str, Mapping[str, Any]] = {
    "bn": {},
    "sl": {"use_scale": False, "use_bias": False},
    "mean-only-bn": {"use_variance": False, "use_scale": False},
    "variance-only-bn": {"use_mean": False},
}


def group_norm(width: int, rngs: nnx.Rngs) -> nnx.Module:
    """Group normalization in 16 groups, or as many of two units or more as divide the width.

    A group of one unit of a dense layer would be normalized to zero.
    """
    most = max(1, min(GROUPS, width // 2))
    groups = next(n for n in range(most, 0, -1) if width % n == 0)
    return nnx.GroupNorm(width, num_groups=groups, rngs=rngs)


def as_input(arrays: Any, **_: Any) -> Any:
    """Arrays of the first one's type, the input's: layers of flax promote it otherwise."""
    return [x if x is None else x.astype(arrays[0].dtype) for x in arrays]


NORMS: Mapping[str, MakeNorm] = {
    # Running statistics forget a tenth a step, as is usual elsewhere.
    **{name: partial(BatchNorm, momentum=0.9, **kind) for name, kind in BATCH_NORMS.items()},
    # Over all of a sample's units, positions of an image included.
    "ln": partial(nnx.GroupNorm, num_groups=1),
    "gn": group_norm,
    "rms": nnx.RMSNorm,
    "dyt": DynamicTanh,
    "derf": DynamicErf,
    "pn": PopulationNorm,
    "standardized-rectifier": StandardizedRectifier,
    # Flax's own, which a benchmark has beside ours.
    "nnx.BatchNorm": partial(nnx.BatchNorm, promote_dtype=as_input),
    "nnx.LayerNorm": partial(nnx.LayerNorm, promote_dtype=as_input),
}


def maker(name: str | None, groups: int = 1) -> MakeNorm | None:
    """The maker of a name, or None; batch statistics are taken of so many parts of the batch."""
    if name is None:
        return None
    return partial(NORMS[name], groups=groups) if name in BATCH_NORMS else NORMS[name]
