"""Meshes of fake devices, and what a compiled program sends between them."""

import re
from typing import Any

import jax
import pytest
from jax.sharding import AxisType

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
    return re.findall(COLLECTIVES, jax.jit(f).lower(*arguments).compile().as_text())
