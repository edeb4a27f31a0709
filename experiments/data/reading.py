"""Guards for reading users' files: the errors of parsers in one line, and sizes against memory."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from experiments.errors import UserError

#: Errors of the system, not of a file's content: permissions, hardware, open files.
_SYSTEM_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
)
#: The files with a container's limit of memory, by the version of cgroups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@contextlib.contextmanager
def reading(what: str | Path, way_out: str) -> Iterator[None]:
    """Turns every error of a parser into a UserError of one line.

    It is for calls of parsers only, which raise errors of any type (zlib.error, MemoryError,
    RecursionError, KeyError).

    Args:
        what: the user's name of the file.
        way_out: the expected file, and what to do.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _SYSTEM_ERRORS:
            way_out = "the system refuses, whatever the file contains: fix that, and try again"
        reason = " ".join(str(error).split())[:300].rstrip(".") or "it is damaged"
        raise UserError(
            f"cannot read {what}: {reason} ({type(error).__name__}); {way_out}."
        ) from error


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
