"""Statements of the papers about their protocols, with their places: data of `paper --check`."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from experiments.papers.catalogue import as_tuple, read
from experiments.papers.registry import PAPERS


class Stated(NamedTuple):
    """A field of a protocol as the paper states it.

    Attributes:
        field: the field's name, as in `experiments.papers.check`.
        value: the paper's value.
        place: the section, table or figure that states it.
        where: a regular expression for the names of the cells that the statement applies to.
    """

    field: str
    value: Any
    place: str
    where: str = ""


@cache
def stated() -> Mapping[str, tuple[Stated, ...]]:
    """Reads all statements of the papers, by item."""
    by_item: dict[str, tuple[Stated, ...]] = {}
    for paper in PAPERS:
        for entry in read(f"{paper}/stated.toml")["stated"]:
            place, where, items = entry.pop("place"), entry.pop("where", ""), entry.pop("items")
            new = tuple(Stated(name, _value(value), place, where) for name, value in entry.items())
            for item in items:
                by_item[f"{paper}/{item}"] = (*by_item.get(f"{paper}/{item}", ()), *new)
    return by_item


def _value(value: Any) -> Any:
    """Converts a value to that of a setting; a regularly falling rate to the list of its drops."""
    return _drops(**value) if isinstance(value, dict) else as_tuple(value)


def _drops(every: int, by: float, of: int, least: float = 0.0) -> tuple[tuple[float, float], ...]:
    epochs = range(every, of, every)
    return tuple((float(epoch), max(by ** (epoch // every), least)) for epoch in epochs)
