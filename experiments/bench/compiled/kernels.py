"""Sets of kernels by name, for what is done to parameters alone."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

Shapes = list[tuple[int, ...]]


def wide_resnet_kernels() -> Shapes:
    """The kernel shapes of WRN-28-10 (Zagoruyko and Komodakis 2016): 36.5M weights."""
    shapes: Shapes = [(3, 3, 3, 16)]
    before = 16
    for width in (160, 320, 640):
        shapes.append((1, 1, before, width))
        for unit in range(4):
            shapes += [(3, 3, before if unit == 0 else width, width), (3, 3, width, width)]
        before = width
    return [*shapes, (before, 10)]


def resnet50_kernels() -> Shapes:
    """The kernel shapes of ResNet-50 (He et al. 2016): 25.5M weights."""
    shapes: Shapes = [(7, 7, 3, 64)]
    before = 64
    for width, units in ((64, 3), (128, 4), (256, 6), (512, 3)):
        shapes.append((1, 1, before, 4 * width))
        for _ in range(units):
            shapes += [(1, 1, before, width), (3, 3, width, width), (1, 1, width, 4 * width)]
            before = 4 * width
    return [*shapes, (before, 1000)]


def decoder_kernels(width: int = 1024, layers: int = 24) -> Shapes:
    """The kernel shapes of a decoder's blocks, those of GPT-2 medium: 302M weights."""
    attention: Shapes = [(width, 3 * width), (width, width)]
    return layers * [*attention, (width, 4 * width), (4 * width, width)]


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
