"""The resident memory of the process, from Linux."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

Result = TypeVar("Result")

_STATUS = Path("/proc/self/status")
#: Writing 5 to this file resets the peak to the present memory.
_PEAK = Path("/proc/self/clear_refs")


class Held(NamedTuple):
    """Resident memory of the process, in MiB; NaN without Linux.

    Attributes:
        before: the memory at the start of a call.
        peak: the largest memory during the call.
    """

    before: float
    peak: float


def with_memory(call: Callable[[], Result]) -> tuple[Result, Held]:
    """Returns the result of a call, and the memory that the process held during it."""
    try:
        _PEAK.write_text("5")
    except OSError:
        return call(), Held(math.nan, math.nan)
    before = _held("VmRSS")
    result = call()
    return result, Held(before, _held("VmHWM"))


def _held(name: str) -> float:
    """Reads a line of the status file, in MiB."""
    kibibytes = _STATUS.read_text(encoding="utf-8").partition(f"{name}:")[2].split()[0]
    return int(kibibytes) / 2**10
