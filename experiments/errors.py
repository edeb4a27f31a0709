"""What the user got wrong, in one line that names the way out."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class UserError(ValueError):
    """A wrong input; the command line prints its one line and exits with status 2."""


class Diverged(ArithmeticError):
    """A run that met a number that is not finite; ``train`` exits with status 1.

    Args:
        message: where it did.
        curve: the epochs before.
        step_ms: milliseconds per step in them.
    """

    def __init__(self, message: str, curve: Sequence[Any] = (), step_ms: float = math.nan):
        super().__init__(message)
        self.curve, self.step_ms = curve, step_ms


class Stopped(Exception):
    """A signal ended the run after its state was saved.

    Attributes:
        status: what the process should exit with, 128 + the signal's number.
    """

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.status = 128 + number


def unknown(
    kind: str, name: str, known: Iterable[str], summaries: Mapping[str, str] = {}
) -> UserError:
    """The error for a name that does not exist, with the names near to it.

    Args:
        kind: what the name would be the name of.
        name: what the user typed.
        known: the names that there are.
        summaries: what they stand for: a name that begins one means it, as batchnorm means bn.
    """
    names, letters = list(known), _letters(name)
    meant = [each for each, words in summaries.items() if _letters(words).startswith(letters)]
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    if letters and meant and name.lower() not in names:
        near = meant[:3]
    guess = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return UserError(f"there is no {kind} {name!r}: {guess}There are {', '.join(names)}.")


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises UserError for a name that does not exist; none may be given."""
    if name not in ("", *known):
        raise unknown(kind, name, known)


def _letters(words: str) -> str:
    return "".join(filter(str.isalpha, words.lower()))
