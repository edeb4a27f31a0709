"""Meshes of fake devices, and what a compiled program sends between them."""

import math
import re
from typing import Any, NamedTuple

import jax
import pytest
from jax.sharding import AxisType

from tests.trees import QUICK

COLLECTIVES = r" (all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)(?:-start)?\("

DEVICES = pytest.mark.parametrize("devices", [1, 2, 4, 8])
BOTH = pytest.mark.parametrize(
    "axis_type", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"]
)


def mesh(devices: int, axis_type: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    """So many devices in a row, along the axis ``data``."""
    return jax.make_mesh((devices,), ("data",), axis_types=(axis_type,))


def collectives(f: Any, *arguments: Any) -> list[str]:
    """The kind of each collective operation of the compiled function."""
    return re.findall(COLLECTIVES, _compiled(f, *arguments))


class Traffic(NamedTuple):
    """What the devices send each other in one call of a compiled function.

    Attributes:
        operations: the kind of each collective; several arrays may travel in one.
        bytes: of the results, summed over all operations.
    """

    operations: list[str]
    bytes: int


def traffic(f: Any, *arguments: Any) -> Traffic:
    """Read off the compiled program, each line of which is ``name = shapes operation(...)``."""
    text = _compiled(f, *arguments)
    lines = [line for line in text.splitlines() if re.search(COLLECTIVES, line)]
    shapes = [re.split(COLLECTIVES, line)[0].partition("=")[2] for line in lines]
    arrays = re.findall(r"([a-z]+)(\d+)\[([\d,]*)\]", " ".join(shapes))
    sizes = [
        int(bits) // 8 * math.prod(map(int, filter(None, dims.split(","))))
        for _, bits, dims in arrays
    ]
    return Traffic(re.findall(COLLECTIVES, text), sum(sizes))


def _compiled(f: Any, *arguments: Any) -> str:
    """Without optimizing the machine code, which comes after the collectives are settled."""
    text: str = jax.jit(f).lower(*arguments).compile(QUICK).as_text()
    return text
