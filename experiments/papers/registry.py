"""The papers' tables and figures by name, of all papers."""

from collections.abc import Mapping
from types import MappingProxyType

from experiments.errors import unknown
from experiments.papers.catalogue import item_of
from experiments.papers.item import Item

#: The items of each paper, in the order of `paper --list`.
PAPERS: Mapping[str, str] = MappingProxyType(
    {
        "vcl": "fig1 fig2 tab1 tab2 tab3 tab4 tab5 fig3",
        "lcw": "fig1 fig2 fig3 fig4 fig5 tab1 fig6",
        "cwo": "signal tab1 tab2 tab3 radius tab4 fig2 tab5 tab6",
        "normprop": "jacobian bound depth fig1 fig2 fig3 fig4 tab1 speed",
        "bn": "fig1a fig1b tab1 fig2ab fig2cd fig2ef fig2gh fig3 fig4",
    }
)

_NAMES = [f"{paper}/{what}" for paper, items in PAPERS.items() for what in items.split()]

ITEMS: Mapping[str, Item] = MappingProxyType({name: item_of(name) for name in _NAMES})


#: What stands for every item on the command line.
ALL = "all"


def find_items(name: str) -> list[Item]:
    """The item of a name, or all; raises UserError with the near names for an unknown one."""
    if name == ALL:
        return list(ITEMS.values())
    if name not in ITEMS:
        raise unknown("paper item", name, [*ITEMS, ALL])
    return [ITEMS[name]]
