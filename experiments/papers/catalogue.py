"""Items read from their files: PAPER/ITEM.toml holds the data, and names the code that runs it.

A file has the title, what the paper ``reported``, ``notes`` for the report, and a table of settings
per preset. ``code`` names the module whose ``run`` makes the report (by default PAPER/ITEM.py), and
``options`` are further arguments of ``run``. A table of trainings needs no code: it has ``rows``
and ``columns``, and the paper's numbers by column, in the order of the rows.

A file has the title, what the paper ``reported``, ``notes`` for the report, and a table of settings
for each preset. ``code`` names the module whose ``run`` makes the report; left out, it is
PAPER/ITEM.py. ``options`` are further arguments of ``run``. A table of trainings needs no code: it
has ``rows`` and ``columns``, and the paper's numbers by column, in the order of the rows.
"""

import math
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.papers.grid import PAPER, Cell, Grid, Ordering, Protocol
from experiments.papers.grid_report import run_grid
from experiments.papers.item import SIZES, Item, Preset
from experiments.papers.presets import table_presets
from experiments.papers.recipes import RECIPES

#: The folder of the papers' folders.
HERE = Path(__file__).parent

#: The entries of a preset that are not settings.
_ABOUT = ("recipe", "cost", "label")

#: The fields that protocols take from a recipe.
_RECIPE_FIELDS = ("learning_rate", "batch_size", "epochs", "weight_decay", "rate_schedule")


def item_of(name: str) -> Item:
    """Reads the item of a name."""
    paper, item = name.split("/")
    file = _read_item(paper, item)
    texts = file["title"], file["reported"], tuple(file.get("notes", ()))
    if "rows" in file:
        sizes = {size: fields_of(file[size]) for size in SIZES}
        full = PAPER.changed(**sizes["full"])
        grid, view = grid_of(file, full), _code(file["code"]).view if "code" in file else None
        costs = file["cpu"]["cost"], file["full"]["cost"]
        presets = table_presets(full, sizes["smoke"], sizes["cpu"], *costs)
        return Item(name, *texts, partial(run_grid, grid, view), presets, grid)
    code = _code(file.get("code", f"{paper}.{item}"))
    settings = getattr(code, "Settings", PAPER.changed)
    presets = {size: _preset(settings, file[size]) for size in SIZES}
    return Item(name, *texts, partial(code.run, **file.get("options", {})), presets)


def grid_of(file: Mapping[str, Any], full: Protocol) -> Grid:
    """Makes the table of trainings in a file.

    Args:
        file: the contents of the file.
        full: the protocol of its full preset.
    """
    orderings = [
        Ordering(worse=worse, **{name: each[name] for name in each if name != "worse"})
        for each in file.get("orderings", ())
        for worse in each["worse"]
    ]
    places = [(row, column) for column in file["columns"] for row in file["rows"]]
    return Grid(
        tuple(_cell(file, full, *place) for place in places),
        tuple(orderings),
        file.get("measure", "test_accuracy"),
        file.get("as_error", False),
        tuple(file.get("beside", ())),
        file.get("literature", {}),
    )


def _cell(file: Mapping[str, Any], full: Protocol, row: str, column: str) -> Cell:
    rows, shared = file["rows"], file["columns"][column]
    entry, index = rows[row], list(rows).index(row)
    reported = shared["reported"][index] if "reported" in shared else math.nan
    return Cell(
        row,
        entry["method"],
        column,
        None if math.isnan(reported) else reported,
        shared["dataset"],
        _changes(entry, full) | _changes(shared, full),
        entry.get("overrides", {}),
        {name: values[index] for name, values in shared.get("also", {}).items()},
    )


def _changes(entry: Mapping[str, Any], full: Protocol) -> dict[str, Any]:
    """Returns the fields of the protocol that a row or column changes, itself or by a recipe."""
    changes = entry.get("changes", {})
    return {
        name: value
        for name, value in fields_of(changes).items()
        if name in changes or getattr(full, name) != value
    }


def fields_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings in a table of a file: those of its recipe, then its own.

    Learning rates fall after epochs in the files, and at shares of the training in settings.
    """
    fields = _recipe_fields(table["recipe"]) if "recipe" in table else {}
    fields |= {name: as_tuple(value) for name, value in table.items() if name not in _ABOUT}
    if drops := fields.get("rate_schedule"):
        fields["rate_schedule"] = tuple((epoch / fields["epochs"], by) for epoch, by in drops)
    return fields


def _recipe_fields(name: str) -> dict[str, Any]:
    """Returns the settings that a recipe of METHOD/NETWORK states."""
    recipe = RECIPES[name]._asdict()
    stated = {field: recipe[field] for field in _RECIPE_FIELDS if recipe[field] is not None}
    return {"model": name.split("/")[1]} | stated


def _read_item(paper: str, item: str) -> dict[str, Any]:
    """Reads an item's file; its entries replace those of the file that it is ``like``."""
    entries = read(f"{paper}/{item}.toml")
    if "like" not in entries:
        return entries
    merged = _read_item(paper, entries.pop("like"))
    for name, value in entries.items():
        merged[name] = merged[name] | value if isinstance(value, dict) else value
    return merged


def read(name: str) -> dict[str, Any]:
    """Reads a TOML file of the papers."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def as_tuple(value: Any) -> Any:
    """Converts nested lists to tuples, so that settings can be compared and hashed."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def _preset(settings: Callable[..., Any], table: Mapping[str, Any]) -> Preset:
    return Preset(settings(**fields_of(table)), table["cost"], table.get("label", ""))


def _code(name: str) -> Any:
    return import_module(f"{__package__}.{name}")
