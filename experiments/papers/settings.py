"""Settings of an item by name: for reports, and changed by the user."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import tyro

from experiments.errors import UserError, unknown
from experiments.papers.item import Item, Preset
from experiments.ranges import missed_range
from experiments.runs.spec import DEVICES

#: Settings of a configuration that items have apart, such as their data, or leave as they are.
APART = DEVICES | {"dataset", "label", "resize", "nonfinite", "tensorboard"}

#: The words between a preset's label and the settings of the user's.
CHANGED = "; set: "


def named(settings: Any) -> dict[str, Any]:
    """Returns the settings of an item, a named tuple or a configuration, by name.

    A configuration's settings that are left out, and those that items have apart, are not among
    them.
    """
    if is_dataclass(settings) and not isinstance(settings, type):
        return {n: v for n, v in asdict(settings).items() if v is not None and n not in APART}
    values: dict[str, Any] = settings._asdict()
    return values


def with_settings(item: Item, preset: Preset, pairs: Sequence[str]) -> Preset:
    """Returns a preset with other values of some settings, which its label names.

    Args:
        item: the table or figure.
        preset: its preset.
        pairs: NAME=VALUE each, or NAME=VALUE;VALUE for several values.

    Raises:
        UserError: for a value out of its range, a row or column that the table does not have, and a
            setting that a cell has a value of its own for.
    """
    settings, names = preset.settings, list[str]()
    known_names = named(settings)
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not (name and equals and text):
            raise UserError(f"--set {pair} is no setting; wanted NAME=VALUE, without spaces.")
        if name in APART or name not in _names(settings):
            raise unknown(f"setting of {item.name}", name, known_names)
        if name in names:
            raise UserError(f"--set has {name} twice; wanted one value of it.")
        names.append(name)
        settings = _changed(settings, name, text)
        value = getattr(settings, name)
        if isinstance(value, int | float) and (wanted := missed_range(name, value)):
            raise UserError(f"--set {name} is {value}; wanted {wanted}.")
        if name in ("only_rows", "only_columns") and item.grid:
            kind = name.removeprefix("only_").removesuffix("s")
            known = dict.fromkeys(getattr(cell, kind) for cell in item.grid.cells)
            for each in value:
                if each not in known:
                    raise unknown(f"{kind} of {item.name}", each, known)
    for cell in item.grid.chosen(settings) if item.grid else ():
        if own := set(names) & cell.changes.keys():
            raise UserError(
                f"--set {min(own)}: the cell {cell.name} of {item.name} has its own; wanted a "
                "setting that all cells share: leave it out, or choose others by --set only_rows."
            )
    return preset._replace(settings=settings, label=f"{preset.label}{CHANGED}{', '.join(pairs)}")


def _names(settings: Any) -> tuple[str, ...]:
    if is_dataclass(settings):
        return tuple(field.name for field in fields(settings))
    names: tuple[str, ...] = settings._fields
    return names


def _changed(settings: Any, name: str, text: str) -> Any:
    """Returns settings with another value of one, which is read as a flag's."""
    flags, said = [f"--{name.replace('_', '-')}", *text.split(";")], io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            return tyro.cli(type(settings), default=settings, args=flags)
    except SystemExit:
        usual = getattr(settings, name)
        raise UserError(
            f"--set {name}={text} cannot be read; wanted a value such as the preset's, {usual!r}, "
            "or several with semicolons between them where the preset has several."
        ) from None
