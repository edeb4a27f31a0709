"""The memory that the process holds, as Linux counts it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

Result = TypeVar("Result")

_STATUS = Path("/proc/self/status")
#: What is written here as 5 sets the peak back to what is held now.
_PEAK = Path("/proc/self/clear_refs")


class Held(NamedTuple):
    """All that a process holds, in MiB; NaN where Linux does not tell.

    Attributes:
        before: at the start of a call.
        peak: the most during it.
    """

    before: float
    peak: float


def with_memory(call: Callable[[], Result]) -> tuple[Result, Held]:
    """The result of a call, and the memory that the process held meanwhile."""
    try:
        _PEAK.write_text("5")
    except OSError:
        return call(), Held(math.nan, math.nan)
    before = _held("VmRSS")
    result = call()
    return result, Held(before, _held("VmHWM"))


def _held(name: str) -> float:
    """A line of the status, which is in KiB, in MiB."""
    rest = _STATUS.read_text(encoding="utf-8").partition(f"{name}:")[2]
    return int(rest.split()[0]) / 2**10
