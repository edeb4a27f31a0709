"""The papers' tables and figures by name: a new item is a new row."""

from collections.abc import Mapping
from types import MappingProxyType

from experiments._errors import unknown
from experiments.papers._item import Item

_ALL: tuple[Item, ...] = ()

ITEMS: Mapping[str, Item] = MappingProxyType({item.name: item for item in _ALL})


def find_item(name: str) -> Item:
    """The item of a name; raises UserError with the near names for one that does not exist."""
    if name not in ITEMS:
        raise unknown("paper item", name, ITEMS)
    return ITEMS[name]
