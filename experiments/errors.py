"""Errors of the user's, in one line each: wrong input, unknown names, missing packages."""

import difflib
import importlib
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """A wrong input; the command line prints its one line and exits with status 2."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Makes the error for a name that does not exist, with similar names.

    Args:
        kind: the kind of thing that is named.
        name: the user's name.
        known: the existing names.
    """
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return UserError(f"there is no {kind} {name!r}: {guess}There are {', '.join(names)}.")


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises UserError for a name that does not exist; an empty name is allowed."""
    if name not in ("", *known):
        raise unknown(kind, name, known)


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
