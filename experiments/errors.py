"""Errors of the user, in one line that names the way out."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


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
