"""Accelerators to compile for, which need not be there, and what their compilers need."""

import importlib.util
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies

from experiments.errors import UserError, unknown

#: The number of GPUs in one machine.
GPUS_PER_HOST = 8

#: Keep a process from looking for a TPU, asking a server about it, and locking out others.
_TPU_SETTINGS = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

#: Disable what needs a card: autotuning, Triton's gemms (which want it), and replaying kernels.
_GPU_FLAGS = (
    "--xla_gpu_enable_command_buffer= --xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
)

CARDS: Mapping[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)


class Target(NamedTuple):
    """Devices to compile for.

    Attributes:
        name: the user's name of it, such as ``v5e:4x4`` or ``h100:8``.
        devices: the number of devices.
        bandwidth: bytes per second to and from the memory (HBM) of each.
        bfloat16: operations per second in matrix products of bfloat16, without sparsity.
        float32: operations per second in those of float32, in JAX's default precision.
        facts: the description of a GPU that XLA's compiler asks for; empty for a TPU.
    """

    name: str
    devices: int
    bandwidth: float
    bfloat16: float
    float32: float
    facts: str = ""


def find_target(name: str) -> Target:
    """Returns the target of a name.

    Raises:
        UserError: for an unknown card, or invalid sizes.
    """
    card, _, sizes = name.partition(":")
    if card not in CARDS:
        raise unknown("target", card, CARDS)
    is_gpu = "facts" in CARDS[card]
    if not re.fullmatch(r"[1-9]\d*" if is_gpu else r"[1-9]\d*(x[1-9]\d*)*", sizes):
        example = f"{card}:8" if is_gpu else "v5e:4x4"
        raise UserError(f"--target is {name!r}; wanted the devices after a colon, as {example}.")
    devices = math.prod(map(int, sizes.split("x")))
    if is_gpu and devices > GPUS_PER_HOST and devices % GPUS_PER_HOST:
        raise UserError(f"--target is {name!r}; wanted up to {GPUS_PER_HOST} or a multiple of it.")
    return Target(name, devices, **CARDS[card])


def check_compiler(target: Target) -> None:
    """Raises UserError if the compiler is not installed."""
    module, extra = ("jax_cuda12_plugin", "gpu") if target.facts else ("libtpu", "tpu")
    if importlib.util.find_spec(module) is None:
        raise UserError(
            f"the compiler for --target {target.name} is not installed: make an environment of its "
            f"own (it would look for a device in yours) and pip install -e '.[compile-{extra}]' "
            "there."
        )


def environment(target: Target, outer: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables of a process that compiles."""
    # The last line of an unfiltered traceback is the error.
    inner = {**outer, "JAX_PLATFORMS": "cpu", "JAX_TRACEBACK_FILTERING": "off"}
    inner.pop("JAX_DISABLE_MOST_OPTIMIZATIONS", None)  # Set by the tests.
    if not target.facts:
        return inner | _TPU_SETTINGS
    flags = f"{outer.get('XLA_FLAGS', '')} {_GPU_FLAGS}".strip()
    return inner | {"CUDA_VISIBLE_DEVICES": "-1", "XLA_FLAGS": flags}


def devices_of(target: Target) -> list[jax.Device]:
    """Returns the compiler's devices, in a process with that `environment`.

    Raises:
        UserError: for sizes that the compiler does not know.
    """
    hosts, each = max(1, target.devices // GPUS_PER_HOST), min(target.devices, GPUS_PER_HOST)
    gpus = {"target_config": target.facts, "topology": f"1x{hosts}x{each}"}
    # The two cores of a v4 chip are one device with megacore.
    tpus = {"chip_config_name": "megacore"} if target.name.startswith("v4:") else {}
    try:
        if target.facts:
            return list(topologies.get_topology_desc(platform="cuda", **gpus).devices)
        return list(topologies.get_topology_desc(target.name, "tpu", **tpus).devices)
    except (RuntimeError, ValueError) as error:
        why = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"the compiler knows no --target {target.name} (in {os.getcwd()}): {why}"
        ) from None
