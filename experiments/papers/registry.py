"""The papers' tables and figures by name, of all papers."""

from collections.abc import Mapping

from experiments import names
from experiments.papers.catalogue import item_of
from experiments.papers.item import Item

ITEMS: Mapping[str, Item] = {name: item_of(name) for name in names.ITEMS}


def find_items(name: str) -> list[Item]:
    """The item of a name, or all."""
    return list(ITEMS.values()) if name == names.ALL else [ITEMS[name]]
