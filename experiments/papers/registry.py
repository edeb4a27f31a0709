"""The tables and figures of all papers by name."""

from collections.abc import Mapping

from experiments.errors import check_known
from experiments.papers.catalogue import item_of
from experiments.papers.item import Item

#: The items of each paper, in the order of `paper --list`.
PAPERS: Mapping[str, str] = {
    "vcl": "fig1 fig2 tab1 tab2 tab3 tab4 tab5 fig3",
    "lcw": "fig1 fig2 fig3 fig4 fig5 tab1 fig6",
    "cwo": "signal tab1 tab2 tab3 radius tab4 fig2 tab5 tab6",
    "normprop": "jacobian bound depth fig1 fig2 fig3 fig4 tab1 speed",
    "bn": "fig1a fig1b tab1 fig2ab fig2cd fig2ef fig2gh fig3 fig4",
}

ITEMS: Mapping[str, Item] = {
    f"{paper}/{item}": item_of(f"{paper}/{item}")
    for paper, items in PAPERS.items()
    for item in items.split()
}

#: The name of all items.
ALL = "all"


def find_items(name: str) -> list[Item]:
    """Returns the item of a name, or all items; raises UserError for an unknown name."""
    check_known("paper item", name, (*ITEMS, ALL))
    return list(ITEMS.values()) if name == ALL else [ITEMS[name]]
