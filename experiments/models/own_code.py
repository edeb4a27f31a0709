"""Errors of the user's code, in one line with its place."""

import contextlib
import importlib.util
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType

from experiments.errors import UserError


def is_from_file(model: str) -> bool:
    """Returns True for FILE.py:NAME, a network of the user's own."""
    return ":" in model


@contextlib.contextmanager
def own_code(model: str) -> Iterator[None]:
    """Turns an exception or an exit of the user's code into a UserError of one line.

    It names the user's file and line; the exception is its cause. Exceptions that do not come from
    the user's files pass.

    Args:
        model: FILE.py:NAME, or the name of a network, whose exceptions all pass.
    """
    file = Path(model.rpartition(":")[0])
    if not file.is_file():  # Whoever reads it says so.
        yield
        return
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        place = place_of(error.__traceback__, file)
        if place is None:
            raise
        raise UserError(f"{model}, at {place}, {_words(error)}; --traceback shows all.") from error


def _words(error: BaseException) -> str:
    reason = " ".join(str(error).split())[:200].rstrip(".")
    if isinstance(error, SystemExit):
        return (
            f"ended the program with status {error.code or 0} while its network was made: put what "
            "is a script's below if __name__ == '__main__'"
        )
    return f"raised {type(error).__name__}{f': {reason}' * bool(reason)}"


def place_of(trace: TracebackType | None, file: Path) -> str | None:
    """Returns FILE:LINE of the innermost frame in a user's file or below its folder, or None."""
    folder, found = file.resolve().parent, None
    for frame, line in traceback.walk_tb(trace):
        place = Path(frame.f_code.co_filename)
        if place.suffix == ".py" and _is_own(place.resolve(), folder):
            found = f"{place.name}:{line}"
    return found


def _is_own(place: Path, folder: Path) -> bool:
    """Returns True for a file below a folder that is part of no installed package."""
    is_package = "site-packages" in place.parts or any(map(place.is_relative_to, _packages()))
    return place.is_relative_to(folder) and not is_package


@cache
def _packages() -> list[Path]:
    """Returns the folders of this project's packages, which may lie beside the user's file."""
    found = [importlib.util.find_spec(name) for name in ("experiments", "jaxnorm")]
    return [Path(each.origin).parent.resolve() for each in found if each and each.origin]
