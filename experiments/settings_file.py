"""Settings files of ``compare``: its flags by their names, in TOML."""

import contextlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import Suppress

from experiments.commands import Compare
from experiments.errors import UserError, unknown
from experiments.runs.files import text_in, write_whole

#: The name of the file in the folder of a comparison.
NAME = "settings.toml"

#: The first line of the file that a comparison writes.
MARK = "# Written by compare, and replaced by it: your own notes need a file elsewhere.\n"

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
    keys: dict[str, str] = {}
    for key, value in settings.items():
        name = key.replace("-", "_")
        if name not in kinds:
            known = [each.replace("_", "-") for each in kinds]
            raise unknown(f"setting of compare, in {file},", key.replace("_", "-"), known)
        if name in keys:
            raise UserError(f"{file} has {keys[name]} and {key}, one flag; wanted it once.")
        keys[name] = key
        flags += _flag(key, value, kinds[name], file)
    return flags


def _kinds(command: type) -> Iterator[tuple[str, Any]]:
    """Yields the name and the type of each flag of a command except ``settings``."""
    for name, hint in get_type_hints(command, include_extras=True).items():
        inner = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
        if is_dataclass(inner) and isinstance(inner, type):
            yield from _kinds(inner)
        elif Suppress not in getattr(hint, "__metadata__", ()) and name != "settings":
            yield name, inner


def _flag(key: str, value: Any, kind: Any, file: Path) -> list[str]:
    """Returns a flag with its values."""
    flag, kinds = f"--{key.replace('_', '-')}", (kind, *get_args(kind))
    if kind is bool and not isinstance(value, bool):
        raise UserError(f"{file} has {key} = {_toml(value)}; wanted {key} = true or false.")
    if isinstance(value, bool) and bool in kinds:
        if kind is not bool:  # None is the value of the flag left out.
            return [flag, str(value)]
        return [flag if value else f"--no-{flag[2:]}"]
    if any(get_origin(each) is tuple for each in kinds):
        return [flag, *_several(key, value, file)]
    return [flag, _text(key, value, file)]


def _several(key: str, value: Any, file: Path) -> list[str]:
    """Returns the values of a flag that takes several: a list, or a table of lists by name."""
    if isinstance(value, Mapping):
        return [f"{name}={_text(name, each, file)}" for name, each in value.items()]
    return [_text(key, each, file) for each in (value if isinstance(value, list) else [value])]


def _text(key: str, value: Any, file: Path) -> str:
    if isinstance(value, list):
        return ",".join(_text(key, each, file) for each in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{file} has {key} = {_toml(value)}; {WANTED}.")
    return str(value)


@contextlib.contextmanager
def named(file: Path | None) -> Iterator[None]:
    """Names the settings file in errors on its flags, and its keys as it writes them."""
    try:
        yield
    except UserError as error:
        if file is None or str(file) in str(error):
            raise
        said = str(error)
        for key in tomllib.loads(file.read_text(encoding="utf-8")):
            said = re.sub(rf"--{key.replace('_', '-')}(?![\w-])", key, said)
        raise UserError(f"in {file}: {said}") from error


def settings_of(flags: Compare) -> str:
    """Returns the settings that a comparison keeps: the file that was named, or its flags.

    Raises:
        UserError: for another file in the place of the copy, which no comparison wrote.
    """
    kept, text = flags.out / NAME, _text_to_keep(flags)
    there = text_in(kept)
    if flags.settings is not None and not there.startswith(MARK) and there not in ("", text):
        raise UserError(
            f"{kept} is there, and compare did not write it; wanted a free name for the copy of "
            "the settings: move that file, or give another --out."
        )
    return text


def keep_settings(flags: Compare, text: str) -> None:
    """Writes the settings of a comparison into --out: with a file of them, or if one is there.

    Without either the command stands in table.md alone.

    Args:
        flags: the comparison.
        text: its `settings_of` when it began.
    """
    kept = flags.out / NAME
    there = text_in(kept)
    if there.removeprefix(MARK) == text or not (there or flags.settings):
        return
    if not there or there.startswith(MARK):
        write_whole(kept, MARK + text)
    else:
        print(f"{kept} is left as it is: compare did not write it, and it need not repeat this.")


def _text_to_keep(flags: Compare) -> str:
    """Returns the file that was named, or one of the flags if the command has others."""
    if flags.settings is None:
        return text_of(flags)
    if is_whole(flags):
        return flags.settings.read_text(encoding="utf-8").removeprefix(MARK)
    return f"# {flags.settings.name}, with other flags of its command.\n{text_of(flags)}"


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
