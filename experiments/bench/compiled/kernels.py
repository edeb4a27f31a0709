"""Sets of kernels by name, for programs on parameters alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from experiments.config import Config
from experiments.methods.paths import by_path
from experiments.methods.table import METHODS
from experiments.papers.sizes import functional_of

Shapes = list[tuple[int, ...]]


def kernels_of(model: str, row: tuple[int, ...], classes: int) -> Shapes:
    """Returns the kernel shapes of a network of the experiments, of the paper's width."""
    config = Config(model=model, channels=64)
    named = by_path(functional_of(METHODS["none"], config, row, classes).params)
    return [leaf.shape for path, leaf in named.items() if path.endswith("/kernel")]


def decoder_kernels(width: int = 1024, layers: int = 24) -> Shapes:
    """Returns the kernel shapes of a decoder's blocks, those of GPT-2 medium: 302M weights."""
    attention: Shapes = [(width, 3 * width), (width, width)]
    return layers * [*attention, (width, 4 * width), (4 * width, width)]


KERNELS: Mapping[str, Callable[[], Sequence[tuple[int, ...]]]] = {
    "conv3x3": lambda: 12 * [(3, 3, 256, 256)],
    "dense": lambda: 6 * [(1024, 1024)],
    "resnet50": lambda: kernels_of("resnet50", (224, 224, 3), 1000),
    "wrn28x10": lambda: kernels_of("wrn28x10", (32, 32, 3), 10),
    "decoder": decoder_kernels,
}


def params_of(model: str) -> dict[str, Any]:
    """Returns the shapes of a set's kernels, each with its bias."""
    layers = enumerate(KERNELS[model]())
    return {f"layer{i}": {"kernel": _float32(s), "bias": _float32(s[-1:])} for i, s in layers}


def _float32(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)
