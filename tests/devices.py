"""Meshes of fake devices, and what a compiled program sends between them."""

from typing import Any

import jax
import pytest
from jax.sharding import AxisType

from experiments.traffic import Traffic, traffic_of
from tests.trees import QUICK

#: On four, in the default run: several devices, with several groups of rows on each.
DEVICES = pytest.mark.parametrize(
    "devices", [4, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 2, 8))]
)
BOTH = pytest.mark.parametrize(
    "axis_type", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"]
)


def mesh(devices: int, axis_type: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    """So many devices in a row, along the axis ``data``."""
    return jax.make_mesh((devices,), ("data",), axis_types=(axis_type,))


def collectives(f: Any, *arguments: Any) -> list[str]:
    """The kind of each collective operation of the compiled function."""
    return traffic(f, *arguments).operations


def traffic(f: Any, *arguments: Any) -> Traffic:
    """What the devices send each other in one call of the compiled function."""
    return traffic_of(_compiled(f, *arguments))


def _compiled(f: Any, *arguments: Any) -> str:
    """Without optimizing the machine code, which comes after the collectives are settled."""
    text: str = jax.jit(f).lower(*arguments).compile(QUICK).as_text()
    return text
