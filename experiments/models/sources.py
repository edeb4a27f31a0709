"""The files that a network of the user's own is made of, and the place of an error in them."""

import ast
import contextlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType

from experiments.errors import UserError

#: Packages whose versions stand for their files.
VERSIONED = ("experiments", "jaxnorm")

#: The files that ran or were read while networks were made, by the networks' file.
_USED: dict[Path, set[Path]] = {}

#: The files whose networks are being made; what is read below their folders belongs to them.
_ACTIVE: list[Path] = []


def content_of(path: str) -> bytes:
    """Returns what a network of a file depends on: the contents of its files, in their order.

    These are the file, the modules that it or they import anywhere, also inside functions, and what
    was imported or read from its folder inside `watched`. Installed packages have versions instead.
    """
    file = Path(path).resolve()
    files = {file} | _USED.get(file, set())
    waiting = list(files)
    while waiting:
        for found in _imported(waiting.pop()) - files:
            files.add(found)
            waiting.append(found)
    return b"".join(each.read_bytes() for each in sorted(files) if each.is_file())


@contextlib.contextmanager
def watched(path: str) -> Iterator[None]:
    """Notes which files the code of a file imports and reads inside the block."""
    file, before = Path(path).resolve(), set(sys.modules)
    _listen()
    _ACTIVE.append(file)
    try:
        yield
    finally:
        _ACTIVE.remove(file)
        names = sys.modules.keys() - before
        places = [getattr(sys.modules[name], "__file__", None) for name in names]
        used = _USED.setdefault(file, set())
        used |= {found for place in places if place and (found := _own(Path(place)))}


@cache
def _listen() -> None:
    """Asks Python to report each file that is opened; it has no way to stop that."""
    sys.addaudithook(_note_opened)


def _note_opened(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _ACTIVE or not isinstance(arguments[0], str):
        return
    mode = arguments[1]
    if isinstance(mode, str) and "r" not in mode:
        return
    place, file = Path(arguments[0]), _ACTIVE[-1]
    if place.suffix not in (".py", ".pyc"):  # They are modules, or are read for messages.
        with contextlib.suppress(OSError):
            place = place.resolve()
            if place.is_relative_to(file.parent) and "site-packages" not in place.parts:
                _USED.setdefault(file, set()).add(place)


def _imported(file: Path) -> set[Path]:
    """Returns the files of the modules that a file's import statements name."""
    if file.suffix != ".py":
        return set()
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # Whoever executes it says so.
        return set()
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= _named(file, node)
    return {found for name in names for found in _files_of(name, file.parent)}


def _named(file: Path, node: ast.ImportFrom) -> set[str]:
    """Returns the modules that ``from x import y`` may name; y may be a module, too."""
    if node.level:
        return set()  # Relative imports are of packages, whose modules `watched` notes.
    module = node.module or ""
    return {module, *(f"{module}.{each.name}" for each in node.names)}


def _files_of(name: str, folder: Path) -> Iterator[Path]:
    """Yields the files of a module and of the packages above it, if they are the user's own."""
    parts = name.split(".")
    if parts[0] in VERSIONED or parts[0] in sys.stdlib_module_names:
        return
    for end in range(1, len(parts) + 1):
        below = folder.joinpath(*parts[:end])
        module = sys.modules.get(".".join(parts[:end]))
        places = [below.with_suffix(".py"), below / "__init__.py"]
        if module is not None and getattr(module, "__file__", None):
            places = [Path(str(module.__file__))]
        yield from (found for place in places if (found := _own(place)))


def _own(place: Path) -> Path | None:
    """Returns the file of a module if it has no version: neither installed nor Python's own."""
    place = place.resolve()
    if place.suffix != ".py" or not place.is_file() or "site-packages" in place.parts:
        return None
    others = [Path(sysconfig.get_path("stdlib")).resolve()]
    for name in VERSIONED:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            others.append(Path(found.origin).resolve().parent)
    return None if any(place.is_relative_to(other) for other in others) else place


@contextlib.contextmanager
def own_code(model: str) -> Iterator[None]:
    """Turns an exception or an exit of the user's code into a UserError of one line.

    It names the user's file and line; the exception is its cause. Exceptions that do not come from
    the user's files pass.

    Args:
        model: FILE.py:NAME, or the name of a network, whose exceptions all pass.
    """
    file = Path(model.rpartition(":")[0])
    if not file.name:
        yield
        return
    try:
        with watched(str(file)):
            yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        place = place_of(error.__traceback__, file)
        if place is None:
            raise
        raise UserError(f"{model}, at {place}, {_words(error)}; --traceback shows all.") from error


def _words(error: BaseException) -> str:
    reason = " ".join(str(error).split())[:200].rstrip(".")
    if isinstance(error, SystemExit):
        return (
            f"ended the program with status {error.code} while its network was made: put what is "
            "a script's below if __name__ == '__main__'"
        )
    return f"raised {type(error).__name__}: {reason}"


def place_of(trace: TracebackType | None, file: Path) -> str | None:
    """Returns FILE:LINE of the innermost frame in the user's files; None if there is none."""
    used = _USED.get(file.resolve(), set()) | {file.resolve()}
    lines = None
    for frame, line in traceback.walk_tb(trace):
        place = Path(frame.f_code.co_filename)
        if place.suffix == ".py" and place.resolve() in used:
            lines = f"{place.name}:{line}"
    return lines
