"""Files that others wrote: whatever is wrong with one is told in a line, before it fills memory."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from experiments.errors import UserError

Record = TypeVar("Record")

#: What a field of a record may be, by its annotation; true and false are no numbers.
_PLAIN: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,)}

#: Errors of the system that say nothing about a file's format: rights, hardware, open files.
_NOT_OF_THE_CONTENT = (
    *(errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
)

#: Where a container's limit of memory is written, by the version of cgroups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@contextlib.contextmanager
def reading(what: str | Path, way_out: str) -> Iterator[None]:
    """Turns everything that a parser raises over foreign bytes into a UserError of one line.

    For calls of parsers alone: they raise whatever they stumble over (zlib.error, MemoryError,
    RecursionError, KeyError), and no list of it would be complete.

    Args:
        what: the file, as the user knows it.
        way_out: what is wanted in its place, and what to do.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NOT_OF_THE_CONTENT:
            way_out = "the system refuses, whatever the file holds: mend that, and try again"
        reason = " ".join(str(error).split())[:300].rstrip(".") or "it is damaged"
        raise UserError(
            f"cannot read {what}: {reason} ({type(error).__name__}); {way_out}."
        ) from error


def record_of(kind: type[Record], values: dict[str, Any]) -> Record:
    """A NamedTuple of numbers and text from what JSON gave; TypeError if it is not one."""
    for name, hint in get_type_hints(kind).items():
        value = values[name]
        if not isinstance(value, _PLAIN[hint]) or isinstance(value, bool):
            raise TypeError(f"its {name} is {value!r}, not {hint.__name__}")
    return kind(**values)


def refuse_too_large(what: str | Path, size: int, way_out: str, free: int | None = None) -> None:
    """Raises UserError for what takes more bytes than are free; on this machine, if not told."""
    free = free_memory() if free is None else free
    if size > free:
        raise UserError(
            f"{what} takes {_shown(size)} of memory; wanted at most the {_shown(free)} that are "
            f"free: {way_out}."
        )


def free_memory() -> int:
    """The bytes that are free: the machine's, or all of a container's if that is less."""
    found = [_number_in(Path(place)) for place in _LIMITS]
    with contextlib.suppress(OSError, ValueError, IndexError):
        rest = Path("/proc/meminfo").read_text(encoding="utf-8").partition("MemAvailable:")[2]
        found.append(1024 * int(rest.split()[0]))
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min((size for size in found if size is not None), default=1 << 62)


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # No such file, or the word max.
        return None


def _shown(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB"
