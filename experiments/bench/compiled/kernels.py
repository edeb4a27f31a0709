"""Sets of kernels by name, for what is done to parameters alone."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from experiments.bench.effective import resnet50_kernels, wide_resnet_kernels
from experiments.bench.update import decoder_kernels

KERNELS: Mapping[str, Callable[[], Sequence[tuple[int, ...]]]] = MappingProxyType(
    {
        "conv3x3": lambda: 12 * [(3, 3, 256, 256)],
        "dense": lambda: 6 * [(1024, 1024)],
        "resnet50": resnet50_kernels,
        "wrn28x10": wide_resnet_kernels,
        "decoder": decoder_kernels,
    }
)


def params_of(model: str) -> dict[str, Any]:
    """The shapes of a set's kernels, each with its bias."""
    layers = enumerate(KERNELS[model]())
    return {f"layer{i}": {"kernel": _float32(s), "bias": _float32(s[-1:])} for i, s in layers}


def _float32(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)
