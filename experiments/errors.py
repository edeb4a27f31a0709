"""Errors of the user, in one line that names the way out."""

import contextlib
import difflib
import errno
import importlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

#: Errors of the system, not of a file's content: permissions, hardware, open files.
_SYSTEM_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),
)


class UserError(ValueError):
    """A wrong input; the command line prints its one line and exits with status 2."""


class Diverged(ArithmeticError):
    """A run that met a number that is not finite; ``train`` exits with status 1.

    Args:
        message: the step and layer.
        curve: the epochs before it.
        step_ms: milliseconds per step in those epochs.
    """

    def __init__(self, message: str, curve: Sequence[Any] = (), step_ms: float = math.nan):
        super().__init__(message)
        self.curve, self.step_ms = curve, step_ms


class Stopped(Exception):
    """A run that a signal ended after its state was saved.

    Attributes:
        status: the exit status, 128 + the signal's number.
    """

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.status = 128 + number


def unknown(
    kind: str, name: str, known: Iterable[str], summaries: Mapping[str, str] = {}
) -> UserError:
    """Makes the error for a name that does not exist, with similar names.

    Args:
        kind: the kind of thing that is named.
        name: the user's name.
        known: the existing names.
        summaries: descriptions of the names; the beginning of one suggests its name, such as
            batchnorm for bn.
    """
    names, letters = list(known), _letters(name)
    meant = [each for each, words in summaries.items() if _letters(words).startswith(letters)]
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    if letters and meant and name.lower() not in names:
        near = meant[:3]
    guess = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return UserError(f"there is no {kind} {name!r}: {guess}There are {', '.join(names)}.")


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises UserError for a name that does not exist; an empty name is allowed."""
    if name not in ("", *known):
        raise unknown(kind, name, known)


def _letters(words: str) -> str:
    return "".join(filter(str.isalpha, words.lower()))


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


def library(name: str, flag: str, extra: str, otherwise: str) -> Any:
    """Imports a library; raises UserError that says how to install it.

    Args:
        name: the name of the module.
        flag: the flag that needs it.
        extra: the extra of the package that installs it.
        otherwise: the alternative without it.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"{flag} needs {name}, which is not installed: pip install 'jaxnorm[{extra}]' in your "
            f"environment, or pip install -e '.[{extra}]' here; {otherwise}."
        ) from None
