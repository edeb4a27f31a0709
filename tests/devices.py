"""Meshes of fake devices, and what a compiled program sends between them."""

from typing import Any, NamedTuple

import jax
import pytest
from jax.sharding import AxisType

from experiments.bench.compiled.program import Program
from tests.trees import QUICK

#: On four, in the default run: several devices, with several groups of rows on each.
DEVICES = pytest.mark.parametrize(
    "devices", [4, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2, 8))]
)
BOTH = pytest.mark.parametrize(
    "axis_type", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"]
)


class Traffic(NamedTuple):
    """What the devices send each other in one call of a compiled function.

    Attributes:
        operations: the kind of each collective; several arrays may travel in one.
        bytes: of the results on one device, summed over all operations.
    """

    operations: list[str]
    bytes: int


def mesh(devices: int, axis_type: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    """So many devices in a row, along the axis ``data``."""
    return jax.make_mesh((devices,), ("data",), axis_types=(axis_type,))


def collectives(f: Any, *arguments: Any) -> list[str]:
    """The kind of each collective operation of the compiled function."""
    return traffic(f, *arguments).operations


def traffic(f: Any, *arguments: Any) -> Traffic:
    """What the devices send each other in one call of the compiled function."""
    program = Program(_compiled(f, *arguments))
    return Traffic(program.collective_kinds, program.collective_bytes)


def _compiled(f: Any, *arguments: Any) -> str:
    """Without optimizing the machine code, which comes after the collectives are settled."""
    text: str = jax.jit(f).lower(*arguments).compile(QUICK).as_text()
    return text
