"""The papers' tables and figures by name, of all papers."""

from collections.abc import Mapping
from types import MappingProxyType

from experiments.errors import unknown
from experiments.papers import bn, cwo, lcw, normprop, vcl
from experiments.papers.item import Item

ITEMS: Mapping[str, Item] = MappingProxyType(
    {item.name: item for paper in (vcl, lcw, cwo, normprop, bn) for item in paper.ITEMS}
)


#: What stands for every item on the command line.
ALL = "all"


def find_items(name: str) -> list[Item]:
    """The item of a name, or all; raises UserError with the near names for an unknown one."""
    if name == ALL:
        return list(ITEMS.values())
    if name not in ITEMS:
        raise unknown("paper item", name, [*ITEMS, ALL])
    return [ITEMS[name]]
