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

#: Flags that say where results go, what is printed, how often a run is saved, and on what it
#: computes; one that diverged may go on from its last good checkpoint without the updates that did
#: it.
FREE = frozenset(
    {"out", "quiet", "tensorboard"}
    | {"checkpoint_dir", "checkpoint_every", "checkpoint_seconds", "keep", "resume", "resume_from"}
    | {"skip_nonfinite", "nonfinite", "parallel", "mesh", "coordinator", "processes", "process_id"}
)


def config_of(settings: Any, *arrays: np.ndarray) -> dict[str, Any]:
    """A dataclass of flags as JSON, without those that change no number, and the data's checksum.

    Args:
        settings: the flags of a command.
        *arrays: the training data: a file of the same name may hold other rows tomorrow.
    """
    flags = dataclasses.asdict(settings).items()
    kept = {name: value for name, value in flags if name not in FREE}
    # As a file gives it back: a tuple would come as a list.
    config: dict[str, Any] = json.loads(json.dumps({**kept, "data": checksum(*arrays)}))
    return config


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
    """Raises UserError with every setting in which ``now`` differs from a checkpoint's."""
    absent = "not a setting"
    # A setting that came after the checkpoint had the value that it has where it is left out.
    usual = config_of(Settings())
    saved = {name: usual[name] for name in now.keys() & usual.keys() - {"data"}} | saved
    differing = [
        f"{name.replace('_', '-')} {saved.get(name, absent)} there and {now.get(name, absent)} here"
        for name in sorted(saved.keys() | now.keys())
        if saved.get(name, absent) != now.get(name, absent)
    ]
    if differing:
        raise UserError(
            f"the checkpoint {where} is of other settings: {'; '.join(differing)}. Give the same, "
            "or another --checkpoint-dir."
        )
