"""Errors of the user's, in one line each: wrong input, unknown names, missing packages."""

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any


class UserError(ValueError):
    """A wrong input; the command line prints its one line and exits with status 2."""


def unknown(
    kind: str,
    name: str,
    known: Iterable[str],
    summaries: Mapping[str, str] = {},
    synonyms: Mapping[str, str] = {},
) -> UserError:
    """Makes the error for a name that does not exist, with similar names.

    Args:
        kind: the kind of thing that is named.
        name: the user's name.
        known: the existing names.
        summaries: descriptions of the names; the beginning of one suggests its name, such as
            batchnorm for bn.
        synonyms: other names of some of them.
    """
    names, letters = list(known), _letters(name)
    meant = [each for each, words in summaries.items() if _letters(words).startswith(letters)]
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    if letters and meant and name.lower() not in names:
        near = meant[:3]
    if name.lower() in synonyms:
        near = [synonyms[name.lower()]]
    guess = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return UserError(f"there is no {kind} {name!r}: {guess}There are {', '.join(names)}.")


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises UserError for a name that does not exist; an empty name is allowed."""
    if name not in ("", *known):
        raise unknown(kind, name, known)


def _letters(words: str) -> str:
    return "".join(filter(str.isalpha, words.lower()))


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
