"""What the user got wrong, in one line that names the way out."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A wrong input; the command line prints its one line and exits with status 2."""


class Diverged(ArithmeticError):
    """A run that met a number that is not finite; the command line exits with status 1."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the names near to it."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return UserError(f"there is no {kind} {name!r}: {guess}There are {', '.join(names)}.")
