"""Meshes of fake devices, and the traffic of compiled programs between them."""

from typing import Any, NamedTuple

import jax
import pytest
from jax.sharding import AxisType

from experiments.bench.compiled.program import Program
from tests.trees import QUICK

#: Four devices by default: several devices, each with several groups of rows.
DEVICES = pytest.mark.parametrize(
    "devices", [4, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 8))]
)
AXIS_TYPES = pytest.mark.parametrize(
    "axis_type", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"]
)


class Traffic(NamedTuple):
    """Communication between devices in one call of a compiled function.

    Attributes:
        operations: the kind of each collective; several arrays may travel in one.
        bytes: of the results on one device, summed over all operations.
    """

    operations: list[str]
    bytes: int


def mesh(devices: int, axis_type: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    """Mesh of one axis, ``data``."""
    return jax.make_mesh((devices,), ("data",), axis_types=(axis_type,))


def collectives(f: Any, *arguments: Any) -> list[str]:
    """Kinds of the collective operations of the compiled function."""
    return traffic(f, *arguments).operations


def traffic(f: Any, *arguments: Any) -> Traffic:
    """Communication between devices in one call of the compiled function."""
    return _traffic(_compiled(f, *arguments))


def result_and_collectives(f: Any, *arguments: Any) -> tuple[Any, list[str]]:
    """Result of the compiled function, and the kinds of its collective operations."""
    compiled = _compiled(f, *arguments)
    return compiled(*arguments), _traffic(compiled).operations


def _traffic(compiled: Any) -> Traffic:
    program = Program(compiled.as_text())
    return Traffic(program.collective_kinds, program.collective_bytes)


def _compiled(f: Any, *arguments: Any) -> Any:
    """Program without optimized machine code, which does not change collectives."""
    return jax.jit(f).lower(*arguments).compile(QUICK)
