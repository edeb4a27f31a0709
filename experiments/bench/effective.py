"""What `effective` costs on large networks, against one read and write of the parameters."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from experiments.bench.table import Measured
from experiments.bench.timing import costs_in_turn
from jaxnorm import (
    CenteredWeightNormalized,
    LinearlyConstrained,
    Scaled,
    SpectrallyNormalized,
    WeightNormalized,
    WeightStandardized,
    attach_singular_vectors,
    effective,
    power_iteration,
    reparametrize,
)

COPY = "read and write"
NODES = {
    "cwo": Scaled,
    "lcw": LinearlyConstrained,
    "wn": WeightNormalized,
    "cwn": CenteredWeightNormalized,
    "ws": WeightStandardized,
    "sn": SpectrallyNormalized,
}
COLUMNS = ("network", "method", "ms", "ratio", "ratio_low", "ratio_high", "gflops", "gbytes")


def wide_resnet_kernels() -> list[tuple[int, ...]]:
    """The kernel shapes of WRN-28-10 (Zagoruyko and Komodakis 2016): 36.5M weights."""
    shapes: list[tuple[int, ...]] = [(3, 3, 3, 16)]
    before = 16
    for width in (160, 320, 640):
        shapes.append((1, 1, before, width))
        for unit in range(4):
            shapes += [(3, 3, before if unit == 0 else width, width), (3, 3, width, width)]
        before = width
    return [*shapes, (before, 10)]


def resnet50_kernels() -> list[tuple[int, ...]]:
    """The kernel shapes of ResNet-50 (He et al. 2016): 25.5M weights."""
    shapes: list[tuple[int, ...]] = [(7, 7, 3, 64)]
    before = 64
    for width, units in ((64, 3), (128, 4), (256, 6), (512, 3)):
        shapes.append((1, 1, before, 4 * width))
        for _ in range(units):
            shapes += [(1, 1, before, width), (3, 3, width, width), (1, 1, width, 4 * width)]
            before = 4 * width
    return [*shapes, (before, 1000)]


NETWORKS = {"WRN-28-10": wide_resnet_kernels, "ResNet-50": resnet50_kernels}


def bench_effective(flags: Any) -> Measured:
    """Raw parameters -> weights for WRN-28-10 and ResNet-50, against reading and writing them."""
    rows = [row for name, kernels in NETWORKS.items() for row in _rows(name, kernels(), flags)]
    return Measured(COLUMNS, rows, "The baseline multiplies every weight by a number.")


def random_params(shapes: list[tuple[int, ...]]) -> dict[str, dict[str, Array]]:
    """Parameters of these kernel shapes."""
    keys = jax.random.split(jax.random.key(0), len(shapes))
    make = jax.random.normal
    return {
        f"layer{i}": {"kernel": make(k, s)}
        for i, (k, s) in enumerate(zip(keys, shapes, strict=True))
    }


def _rows(network: str, shapes: list[tuple[int, ...]], flags: Any) -> list[tuple[Any, ...]]:
    params = random_params(shapes)
    compiled = {}
    for name in (COPY, *NODES):
        run, raw = _subject(name, params)
        compiled[name] = jax.jit(run).lower(raw).compile(), (raw,)
    return [(network, *row) for row in costs_in_turn(compiled, COPY, flags.repeats)]


def _subject(name: str, params: Any) -> tuple[Any, Any]:
    """The function to time, and what it is called with."""
    if name == COPY:
        return (lambda raw: jax.tree.map(lambda w: w * jnp.float32(1.5), raw)), params
    raw = reparametrize(params, NODES[name])
    if name == "sn":  # as in training: with the vectors at hand
        return effective, attach_singular_vectors(raw, power_iteration(raw, _unit_vectors(raw)))
    return effective, raw


def _unit_vectors(raw: Any) -> dict[str, Array]:
    return {
        f"{layer}/kernel": jnp.ones(leaves["kernel"].kernel.shape[-1])
        for layer, leaves in raw.items()
    }
