"""Items from their files: PAPER/ITEM.toml holds all that is data, and names the code that runs it.

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

#: What a preset's table has besides settings.
_ABOUT = ("recipe", "cost", "label")

#: What protocols take from a recipe.
_OF_RECIPES = ("learning_rate", "batch_size", "epochs", "weight_decay", "rate_schedule")


def item_of(name: str) -> Item:
    """The item of a name, from its file."""
    paper, what = name.split("/")
    said = _said(paper, what)
    texts = said["title"], said["reported"], tuple(said.get("notes", ()))
    if "rows" in said:
        sizes = {size: fields_of(said[size]) for size in SIZES}
        full = PAPER.changed(**sizes["full"])
        grid, view = grid_of(said, full), _code(said["code"]).view if "code" in said else None
        costs = said["cpu"]["cost"], said["full"]["cost"]
        presets = table_presets(full, sizes["smoke"], sizes["cpu"], *costs)
        return Item(name, *texts, partial(run_grid, grid, view), presets, grid)
    code = _code(said.get("code", f"{paper}.{what}"))
    settings = getattr(code, "Settings", PAPER.changed)
    presets = {size: _preset(settings, said[size]) for size in SIZES}
    return Item(name, *texts, partial(code.run, **said.get("options", {})), presets)


def grid_of(said: Mapping[str, Any], full: Protocol) -> Grid:
    """The table of trainings in a file.

    Args:
        said: the file.
        full: the protocol of its full preset.
    """
    orderings = [
        Ordering(worse=worse, **{name: each[name] for name in each if name != "worse"})
        for each in said.get("orderings", ())
        for worse in each["worse"]
    ]
    places = [(row, column) for column in said["columns"] for row in said["rows"]]
    return Grid(
        tuple(_cell(said, full, *place) for place in places),
        tuple(orderings),
        said.get("measure", "test_accuracy"),
        said.get("as_error", False),
        tuple(said.get("beside", ())),
        said.get("literature", {}),
    )


def _cell(said: Mapping[str, Any], full: Protocol, row: str, column: str) -> Cell:
    own, shared, place = said["rows"][row], said["columns"][column], list(said["rows"]).index(row)
    reported = shared["reported"][place] if "reported" in shared else math.nan
    return Cell(
        row,
        own["method"],
        column,
        None if math.isnan(reported) else reported,
        shared["dataset"],
        _changes(own, full) | _changes(shared, full),
        own.get("overrides", {}),
        {name: values[place] for name, values in shared.get("also", {}).items()},
    )


def _changes(said: Mapping[str, Any], full: Protocol) -> dict[str, Any]:
    """The fields of the protocol that a row or column changes, and what a recipe changes of it."""
    own = said.get("changes", {})
    return {
        name: value
        for name, value in fields_of(own).items()
        if name in own or getattr(full, name) != value
    }


def fields_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a table of a file: those of a recipe, and what is said besides.

    Learning rates fall after epochs in the files, and at shares of the training in settings.
    """
    fields = _of_recipe(said["recipe"]) if "recipe" in said else {}
    fields |= {name: as_tuple(value) for name, value in said.items() if name not in _ABOUT}
    if drops := fields.get("rate_schedule"):
        fields["rate_schedule"] = tuple((epoch / fields["epochs"], by) for epoch, by in drops)
    return fields


def _of_recipe(name: str) -> dict[str, Any]:
    """The settings that a recipe of METHOD/NETWORK states."""
    recipe = RECIPES[name]._asdict()
    stated = {field: recipe[field] for field in _OF_RECIPES if recipe[field] is not None}
    return {"model": name.split("/")[1]} | stated


def _said(paper: str, what: str) -> dict[str, Any]:
    """A file; one that is ``like`` another has what that has, but for what is its own."""
    own = read(f"{paper}/{what}.toml")
    if "like" not in own:
        return own
    both = _said(paper, own.pop("like"))
    for name, value in own.items():
        both[name] = both[name] | value if isinstance(value, dict) else value
    return both


def read(name: str) -> dict[str, Any]:
    """A file of data of the papers."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def as_tuple(value: Any) -> Any:
    """Lists as tuples, which settings can be compared by."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def _preset(settings: Callable[..., Any], said: Mapping[str, Any]) -> Preset:
    return Preset(settings(**fields_of(said)), said["cost"], said.get("label", ""))


def _code(name: str) -> Any:
    return import_module(f"{__package__}.{name}")
