"""What the papers' texts state of their protocols, and where: data that `paper --check` reads."""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from experiments.names import PAPERS
from experiments.papers.catalogue import as_tuple, read


class Stated(NamedTuple):
    """One field of a protocol as the paper has it.

    Attributes:
        field: its name, as `experiments.papers.check` lists it.
        value: the paper's.
        place: the section, table or figure that states it.
        where: a regular expression that is found in the names of the cells it is said of.
    """

    field: str
    value: Any
    place: str
    where: str = ""


@cache
def stated() -> Mapping[str, tuple[Stated, ...]]:
    """All that the papers state, by item."""
    found: dict[str, tuple[Stated, ...]] = {}
    for paper in PAPERS:
        for said in read(f"{paper}/stated.toml")["stated"]:
            place, where = said.pop("place"), said.pop("where", "")
            items = said.pop("items")
            own = tuple(Stated(name, _value(value), place, where) for name, value in said.items())
            for item in items:
                found[f"{paper}/{item}"] = (*found.get(f"{paper}/{item}", ()), *own)
    return found


def _value(value: Any) -> Any:
    """As settings have it; of a rate that falls regularly, every drop."""
    return _drops(**value) if isinstance(value, dict) else as_tuple(value)


def _drops(every: int, by: float, of: int, least: float = 0.0) -> tuple[tuple[float, float], ...]:
    epochs = range(every, of, every)
    return tuple((float(epoch), max(by ** (epoch // every), least)) for epoch in epochs)
