"""Files, folders and variables that a user's network is made of, and the place of its errors."""

import ast
import contextlib
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
import traceback
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import all_suffixes
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from experiments.errors import UserError

#: Packages whose versions stand for their files.
VERSIONED = ("experiments", "jaxnorm")

#: Packages whose versions are known for every run; NumPy keeps its numbers from version to version.
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")

#: The events of Python that read a file.
READS = ("open", "sqlite3.connect")
#: The events of Python that list a folder.
LISTS = ("os.listdir", "os.scandir")

#: The frames of Python's own imports, whose files are known as modules.
IMPORTS = "<frozen importlib"

#: Folders of the system, whose files are no part of a network.
SYSTEM = ("/proc", "/sys", "/dev")


@dataclass
class _Uses:
    """Files and listed folders that were used while the networks of a file were made."""

    files: set[Path] = field(default_factory=set)
    folders: set[Path] = field(default_factory=set)


#: The uses, by the networks' file.
_USED: dict[Path, _Uses] = {}

#: The files whose networks are being made.
_ACTIVE: list[Path] = []


def files_of(path: str) -> dict[str, int]:
    """Returns a checksum of each file that the networks of a file depend on, by its path."""
    return {str(each): zlib.crc32(each.read_bytes()) for each in _files(Path(path).resolve())}


def content_of(path: str) -> bytes:
    """Returns what a network of a file depends on: the contents of its files, in their order.

    These are the file, the modules that it or they import anywhere, also inside functions, and what
    the user's code imported or read inside `watched`, wherever it lies. After them come the names
    in the folders that it listed, the environment variables whose names are strings in its
    modules, and the versions of the installed packages that these import.

    Compiled code (HDF5, Polars, safetensors, another program) reads without telling Python: of such
    files those count whose paths, from the current folder or that of the module, are strings in its
    modules. Python tells of neither the rest of what a program may ask for: a file that the code
    only looks for (``Path.exists``) counts through the listing of its folder alone, and a variable
    or a compiled code's file whose name is put together does not count.
    """
    file = Path(path).resolve()
    uses, files = _USED.get(file, _Uses()), _files(file)
    names = [f"{folder.name}: {sorted(_names_in(folder))}" for folder in sorted(uses.folders)]
    strings = {text for each in files for text in _strings(each)}
    values = [f"{name}={os.environ[name]}" for name in sorted(strings & os.environ.keys())]
    versions = [f"{name} {version}" for name, version in sorted(_packages(files).items())]
    others = "\n".join([*names, *values, *versions]).encode(errors="surrogateescape")
    return b"".join(each.read_bytes() for each in files) + others


def _files(file: Path) -> list[Path]:
    files = {file} | _USED.get(file, _Uses()).files
    waiting = list(files)
    while waiting:
        module = waiting.pop()
        for found in (_imported(module) | _named_files(module)) - files:
            files.add(found)
            waiting.append(found)
    return [each for each in sorted(files) if each.is_file()]


def _named_files(module: Path) -> set[Path]:
    """Returns the files whose paths are strings in a module."""
    found = set[Path]()
    for text in _strings(module):
        with contextlib.suppress(OSError, ValueError):
            places = [folder / text for folder in (Path(), module.parent)] if text.strip() else []
            found |= {
                place.resolve()
                for place in places
                if place.is_file() and not _is_outside(place.resolve())
            }
    return found


def _is_outside(place: Path) -> bool:
    """Returns True for a file that is no part of a network: a package's, Python's, the system's."""
    return _is_versioned(place) or str(place).startswith(SYSTEM)


def own_modules(path: str) -> list[str]:
    """Returns the names of the modules of Python code that a file's networks use, itself among."""
    used = _USED.get(Path(path).resolve(), _Uses()).files
    names = {each.name for each in used if each.suffix == ".py"}
    places = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return [
        name
        for name, place in places.items()
        if place and os.path.basename(place) in names and Path(place).resolve() in used
    ]


def _packages(files: Iterable[Path]) -> dict[str, str]:
    """Returns the versions of installed packages by the names under which modules import them.

    Those of `PACKAGES` are known for every run.
    """
    known = {*sys.stdlib_module_names, *VERSIONED, *PACKAGES, ""}
    names = {
        name.partition(".")[0]
        for file in files
        for name in _imported_names(file)
        if name.partition(".")[0] not in known and not any(_files_of(name, file.parent))
    }
    return {name: version for name in names if (version := _version(name))}


@cache
def _version(name: str) -> str:
    """Returns the version of an installed package; empty for a module of another kind."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    distributions = importlib.metadata.packages_distributions().get(name, [])
    return " ".join(importlib.metadata.version(each) for each in dict.fromkeys(distributions))


def _names_in(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(folder) if name != "__pycache__"]
    return []


@contextlib.contextmanager
def watched(path: str) -> Iterator[None]:
    """Notes what the code of a file imports, reads and lists inside the block."""
    file, before = Path(path).resolve(), set(sys.modules)
    _listen()
    _ACTIVE.append(file)
    try:
        yield
    finally:
        _ACTIVE.remove(file)
        names = sys.modules.keys() - before
        places = [getattr(sys.modules[name], "__file__", None) for name in names]
        used = _USED.setdefault(file, _Uses()).files
        used |= {found for place in places if place and (found := _own(Path(place)))}


@cache
def _listen() -> None:
    """Asks Python to report each file that is opened; it cannot stop that."""
    sys.addaudithook(
        lambda event, arguments: (
            _note(event, arguments, sys._getframe().f_back)
            if _ACTIVE and event in (*READS, *LISTS)
            else None
        )
    )


def _read_by_user(frame: FrameType | None) -> bool:
    """Returns True if the user's code, which experiments called, waits for what is being read."""
    if frame is not None and frame.f_code.co_filename.startswith(IMPORTS):
        return False
    while frame is not None and not _is_ours(frame.f_code.co_filename):
        if _is_own(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


@cache
def _is_ours(name: str) -> bool:
    return Path(name).is_relative_to(Path(__file__).parents[1])


@cache
def _is_own(name: str) -> bool:
    return _own(Path(name)) is not None


def _note(event: str, arguments: tuple[Any, ...], frame: FrameType | None) -> None:
    """Notes a file that the user's code reads, or a folder that it lists."""
    name, is_path = arguments[0], isinstance(arguments[0], str | bytes | os.PathLike)
    if not is_path or not _is_read(event, arguments) or not _read_by_user(frame):
        return
    with contextlib.suppress(OSError, ValueError):
        place, uses = Path(os.fsdecode(name)).resolve(), _USED.setdefault(_ACTIVE[-1], _Uses())
        if _is_outside(place):
            return
        if event in LISTS:
            uses.folders.add(place)
        elif place.is_file() and "__pycache__" not in place.parts:
            uses.files.add(place)


def _is_read(event: str, arguments: tuple[Any, ...]) -> bool:
    mode = arguments[1] if event == "open" else None
    return not isinstance(mode, str) or "r" in mode


def _imported(file: Path) -> set[Path]:
    """Returns the files of the modules that a file's import statements name."""
    return {found for name in _imported_names(file) for found in _files_of(name, file.parent)}


def _imported_names(file: Path) -> set[str]:
    """Returns the modules that a file's import statements name, or may name."""
    names = set[str]()
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= _named(file, node)
    return names


def _strings(file: Path) -> Iterator[str]:
    """Yields the strings in a module, which may be names of environment variables."""
    for node in _nodes(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            yield os.fsdecode(node.value)


def _nodes(file: Path) -> Iterator[ast.AST]:
    """Yields the nodes of a module's syntax tree; none for other files."""
    if file.suffix == ".py":
        with contextlib.suppress(SyntaxError, ValueError):  # Whoever executes it says so.
            yield from ast.walk(ast.parse(file.read_bytes()))


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
    is_module = place.name.endswith(tuple(all_suffixes())) and place.is_file()
    return place if is_module and not _is_versioned(place) else None


def _is_versioned(place: Path) -> bool:
    """Returns True for a file of an installed package, of Python's library, or of this project."""
    return "site-packages" in place.parts or any(map(place.is_relative_to, _versioned()))


@cache
def _versioned() -> list[Path]:
    """Returns the folders of Python's library and of the packages that have versions."""
    found = [importlib.util.find_spec(name) for name in VERSIONED]
    origins = [Path(each.origin).parent for each in found if each is not None and each.origin]
    return [each.resolve() for each in (Path(sysconfig.get_path("stdlib")), *origins)]


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
        with watched(str(file)):
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
    """Returns FILE:LINE of the innermost frame in the user's files; None if there is none."""
    used = _USED.get(file.resolve(), _Uses()).files | {file.resolve()}
    lines = None
    for frame, line in traceback.walk_tb(trace):
        place = Path(frame.f_code.co_filename)
        if place.suffix == ".py" and place.resolve() in used:
            lines = f"{place.name}:{line}"
    return lines
