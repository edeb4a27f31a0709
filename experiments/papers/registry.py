"""The tables and figures of all papers by name."""

from collections.abc import Mapping

from experiments import names
from experiments.papers.catalogue import item_of
from experiments.papers.item import Item

ITEMS: Mapping[str, Item] = {name: item_of(name) for name in names.ITEMS}


def find_items(name: str) -> list[Item]:
    """Returns the item of a name, or all items."""
    return list(ITEMS.values()) if name == names.ALL else [ITEMS[name]]
