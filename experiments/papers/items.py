"""The tables and figures of all papers by name."""

from collections.abc import Mapping

from experiments.commands import ALL
from experiments.errors import check_known
from experiments.papers import bn, cwo, lcw, normprop, vcl
from experiments.papers.item import Item

#: The items of each paper, in the order of `paper --list`.
ITEMS: Mapping[str, Item] = {
    item.name: item for paper in (vcl, lcw, cwo, normprop, bn) for item in paper.ITEMS
}


def find_items(name: str) -> list[Item]:
    """Returns the item of a name, or all items; raises UserError for an unknown name."""
    check_known("paper item", name, (*ITEMS, ALL))
    return list(ITEMS.values()) if name == ALL else [ITEMS[name]]
