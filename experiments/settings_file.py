"""Settings files of ``compare``: its flags by their names, in TOML."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import Suppress

from experiments.commands import Compare
from experiments.errors import UserError, unknown

#: The name of the file in the folder of a comparison.
NAME = "settings.toml"

#: Flags that change no result.
UNSHOWN = ("fresh", "quiet", "traceback", "jobs")

WANTED = 'wanted lines of flags such as seeds = 3, methods = ["bn", "gn"], and [tune] for --tune'


def flags_of(file: Path) -> list[str]:
    """Returns the flags of a settings file as a command line has them.

    Args:
        file: TOML with names of flags. A list stands for values with commas between them, or for
            several values of ``tune``, which may also be a table of lists by name of flag.

    Raises:
        UserError: for a file that cannot be read, a name that is no flag, or a value of another
            kind than flags have.
    """
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--settings is {file}: {reason}; {WANTED}.") from error
    kinds = dict(_kinds(Compare))
    flags: list[str] = []
    for key, value in settings.items():
        name = key.replace("-", "_")
        if name not in kinds:
            known = [each.replace("_", "-") for each in kinds]
            raise unknown(f"setting of compare, in {file},", key.replace("_", "-"), known)
        flags += _flag(name, value, kinds[name], file)
    return flags


def _kinds(command: type) -> Iterator[tuple[str, Any]]:
    """Yields the name and the type of each flag of a command except ``settings``."""
    for name, hint in get_type_hints(command, include_extras=True).items():
        inner = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
        if is_dataclass(inner) and isinstance(inner, type):
            yield from _kinds(inner)
        elif Suppress not in getattr(hint, "__metadata__", ()) and name != "settings":
            yield name, inner


def _flag(name: str, value: Any, kind: Any, file: Path) -> list[str]:
    """Returns a flag with its values."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    has_several = any(get_origin(each) is tuple for each in (kind, *get_args(kind)))
    if has_several:
        return [flag, *_several(name, value, file)]
    return [flag, _text(name, value, file)]


def _several(name: str, value: Any, file: Path) -> list[str]:
    """Returns the values of a flag that takes several: a list, or a table of lists by name."""
    if isinstance(value, Mapping):
        return [f"{key}={_text(name, each, file)}" for key, each in value.items()]
    return [_text(name, each, file) for each in (value if isinstance(value, list) else [value])]


def _text(name: str, value: Any, file: Path) -> str:
    if isinstance(value, list):
        return ",".join(_text(name, each, file) for each in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{file} has {name} = {value!r}; {WANTED}.")
    return str(value)


def is_whole(flags: Compare) -> bool:
    """Returns True if the command line replaced nothing of the settings file that it named."""
    assert flags.settings is not None, "no settings file"
    return text_of(tyro.cli(Compare, args=flags_of(flags.settings))) == text_of(flags)


def text_of(flags: Compare) -> str:
    """Returns the settings file of flags: those that are not the defaults."""
    lines = [f"{name} = {_toml(value)}" for name, value in _changed(flags, Compare())]
    return "\n".join([*lines, ""])


def _changed(flags: Any, defaults: Any) -> Iterator[tuple[str, Any]]:
    """Yields the flags whose values are not the defaults, without the file and the folder."""
    for each in fields(flags):
        value, default = getattr(flags, each.name), getattr(defaults, each.name)
        if is_dataclass(value):
            yield from _changed(value, default)
        elif value != default and each.name not in ("settings", "out", *UNSHOWN):
            yield each.name, value


def _toml(value: Any) -> str:
    """Returns a value as TOML writes it."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else json.dumps(str(value))
