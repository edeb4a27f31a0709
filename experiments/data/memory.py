"""The free memory of the machine, and a check of sizes against it."""

import contextlib
import os
from pathlib import Path

from experiments.errors import UserError

#: The files with a container's limit of memory, by the version of cgroups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def refuse_too_large(what: str | Path, size: int, way_out: str, free: int | None = None) -> None:
    """Raises UserError if something takes more bytes than are free, here by default."""
    free = free_memory() if free is None else free
    if size > free:
        raise UserError(
            f"{what} takes {_shown(size)} of memory; wanted at most the {_shown(free)} that are "
            f"free: {way_out}."
        )


def free_memory() -> int:
    """Returns the free bytes of the machine, or the container's limit if that is less."""
    sizes = [_number_in(Path(path)) for path in _LIMITS]
    with contextlib.suppress(OSError, ValueError, IndexError):
        available = Path("/proc/meminfo").read_text(encoding="utf-8").partition("MemAvailable:")[2]
        sizes.append(1024 * int(available.split()[0]))
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min((size for size in sizes if size is not None), default=1 << 62)


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # No such file, or the word max.
        return None


def _shown(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
