"""The settings that a run's numbers depend on, stored with its checkpoints."""

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
    """Returns a checksum of arrays, which tells data sets apart."""
    number = 0
    for array in arrays:
        number = zlib.crc32(np.ascontiguousarray(array).data, number)
    return number


def versions() -> dict[str, str]:
    """Returns the versions of jaxnorm and JAX, which a run's numbers depend on."""
    return {"jaxnorm": jaxnorm.__version__, "jax": jax.__version__}


def version_note(saved: Mapping[str, str]) -> str:
    """Names the versions that wrote a checkpoint, if they differ from the present ones."""
    others = [
        f"{name} {saved[name]}" for name, now in versions().items() if saved.get(name, now) != now
    ]
    return f" of {' and '.join(others)}, which may differ in defaults and numbers" if others else ""


def check_config(saved: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raises UserError naming every setting in which ``now`` differs from a checkpoint's.

    A missing setting has its default: it was added later, or left out.
    """
    defaults = {each.name: each.default for each in dataclasses.fields(Settings)}
    # Through JSON, which makes lists of tuples.
    old, new = (json.loads(json.dumps(defaults | config)) for config in (saved, now))
    differing = [
        f"{name.replace('_', '-')} {old.get(name)} there and {new.get(name)} here"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
    if differing:
        raise UserError(
            f"the checkpoint {where} has other settings: {'; '.join(differing)}. Give the same, "
            "or another --checkpoint-dir."
        )
