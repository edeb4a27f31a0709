"""Settings of an item by name: for reports, and changed by the user."""

from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import tyro

from experiments.errors import UserError, unknown
from experiments.papers.item import Item, Preset
from experiments.ranges import missed_range
from experiments.runs.spec import DEVICES

#: Settings of a configuration that items have apart, such as their data, or leave as they are.
APART = DEVICES | {"dataset", "label", "resize", "nonfinite", "tensorboard"}


def named(settings: Any) -> dict[str, Any]:
    """Returns the settings of an item, a named tuple or a configuration, by name.

    A configuration's settings that are left out, and those that items have apart, are not among
    them.
    """
    if is_dataclass(settings) and not isinstance(settings, type):
        return {n: v for n, v in asdict(settings).items() if v is not None and n not in APART}
    fields: dict[str, Any] = settings._asdict()
    return fields


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
    names, flags = [], []
    for name, _, values in (pair.partition("=") for pair in pairs):
        names.append(name.replace("-", "_"))
        flags += [f"--{name}", *values.split(";")]
    program = f"paper {item.name} --set"
    settings = tyro.cli(type(preset.settings), default=preset.settings, args=flags, prog=program)
    for name in names:
        if name in APART:
            raise unknown(f"setting of {item.name}", name, named(preset.settings))
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
    return preset._replace(settings=settings, label=f"{preset.label}; set: {', '.join(pairs)}")
