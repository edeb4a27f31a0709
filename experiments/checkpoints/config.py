"""The settings that a run's numbers depend on, kept with its checkpoints."""

import dataclasses
import json
import zlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import jaxnorm
from experiments.errors import UserError
from experiments.settings import Settings


def checksum(*arrays: np.ndarray) -> int:
    """A number that tells arrays from others."""
    number = 0
    for array in arrays:
        number = zlib.crc32(np.ascontiguousarray(array).data, number)
    return number


def versions() -> dict[str, str]:
    """Those that decide a run's numbers, kept with its checkpoints."""
    return {"jaxnorm": jaxnorm.__version__, "jax": jax.__version__}


def said_of_versions(saved: Mapping[str, str]) -> str:
    """That another version wrote a checkpoint; nothing where it is the same, or was not kept."""
    others = [
        f"{name} {saved[name]}" for name, now in versions().items() if saved.get(name, now) != now
    ]
    return (
        f" of {' and '.join(others)}, which may have other defaults and numbers" if others else ""
    )


def check_config(saved: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raises UserError with every setting in which ``now`` differs from a checkpoint's.

    A setting that is not there has its default: it came later, or is left out.
    """
    usual = {each.name: each.default for each in dataclasses.fields(Settings)}
    # As a file gives it back: a tuple would come as a list.
    old, new = (json.loads(json.dumps(usual | config)) for config in (saved, now))
    differing = [
        f"{name.replace('_', '-')} {old.get(name)} there and {new.get(name)} here"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if differing:
        raise UserError(
            f"the checkpoint {where} is of other settings: {'; '.join(differing)}. Give the same, "
            "or another --checkpoint-dir."
        )
