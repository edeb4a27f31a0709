"""Accelerators that are not there: what is compiled for, and what that needs to be installed."""

import importlib.util
import math
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import jax
from jax.experimental import topologies

from experiments.bench.compiled.cards import GPUS, TPUS, Card
from experiments.errors import UserError, unknown

#: GPUs in one machine; more are taken from several.
GPUS_A_HOST = 8

#: The module that brings the compiler, and the extra that installs it.
_COMPILERS = {"tpu": ("libtpu", "compile-tpu"), "cuda": ("jax_cuda12_plugin", "compile-gpu")}

#: Without them a process would look for a TPU, ask a server what it is, and lock out the others.
_TPU_SETTINGS = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

#: What only a card could do: trying kernels out, which gemms of Triton want, and replaying them.
_GPU_FLAGS = (
    "--xla_gpu_enable_command_buffer= --xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
)


class Target(NamedTuple):
    """What is compiled for.

    Attributes:
        name: as the user writes it, ``v5e:4x4`` or ``h100:8``.
        platform: ``tpu`` or ``cuda``.
        card: each device.
        sizes: of the torus of TPUs, or the number of GPUs alone.
    """

    name: str
    platform: str
    card: Card
    sizes: tuple[int, ...]

    @property
    def devices(self) -> int:
        """How many there are."""
        return math.prod(self.sizes)


def find_target(name: str) -> Target:
    """The target of a name.

    Raises:
        UserError: for a card that is not known, and sizes that are none.
    """
    card, _, sizes = name.partition(":")
    if card not in {**TPUS, **GPUS}:
        raise unknown("target", card, [*TPUS, *GPUS])
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*" if card in TPUS else r"[1-9]\d*", sizes):
        example = "v5e:4x4" if card in TPUS else f"{card}:8"
        raise UserError(f"--target is {name!r}; wanted the devices after a colon, as {example}.")
    numbers = tuple(map(int, sizes.split("x")))
    if card in TPUS:
        return Target(name, "tpu", TPUS[card], numbers)
    if numbers[0] > GPUS_A_HOST and numbers[0] % GPUS_A_HOST:
        raise UserError(f"--target is {name!r}; wanted up to {GPUS_A_HOST} or a multiple of it.")
    return Target(name, "cuda", GPUS[card], numbers)


def check_compiler(target: Target) -> None:
    """Raises UserError where the compiler is not installed."""
    module, extra = _COMPILERS[target.platform]
    if importlib.util.find_spec(module) is None:
        raise UserError(
            f"the compiler for --target {target.name} is not installed: make an environment of its "
            f"own (it would look for a device in yours) and pip install -e '.[{extra}]' there."
        )


def environment(target: Target, outer: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a process that compiles."""
    # Unfiltered, the last line of an error is the error.
    inner = {**outer, "JAX_PLATFORMS": "cpu", "JAX_TRACEBACK_FILTERING": "off"}
    inner.pop("JAX_DISABLE_MOST_OPTIMIZATIONS", None)  # As tests run.
    if target.platform == "tpu":
        return inner | _TPU_SETTINGS
    flags = f"{outer.get('XLA_FLAGS', '')} {_GPU_FLAGS}".strip()
    return inner | {"CUDA_VISIBLE_DEVICES": "-1", "XLA_FLAGS": flags}


def devices_of(target: Target) -> list[jax.Device]:
    """The devices that are not there; in a process with that `environment`.

    Raises:
        UserError: for sizes that no such TPU has.
    """
    try:
        return list(_topology(target).devices)
    except (RuntimeError, ValueError) as error:
        why = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"the compiler knows no --target {target.name} (in {os.getcwd()}): {why}"
        ) from None


def _topology(target: Target) -> topologies.TopologyDescription:
    if target.platform == "tpu":
        # A v4 chip has two cores, which are one device or two.
        options = {"chip_config_name": "megacore"} if target.name.startswith("v4:") else {}
        return topologies.get_topology_desc(target.name, "tpu", **options)
    hosts, each = max(1, target.devices // GPUS_A_HOST), min(target.devices, GPUS_A_HOST)
    return topologies.get_topology_desc(
        platform="cuda", target_config=target.card.facts, topology=f"1x{hosts}x{each}"
    )
