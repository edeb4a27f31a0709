"""The papers' tables and figures by name: a new item is a new row."""

from collections.abc import Mapping
from types import MappingProxyType

from experiments._errors import unknown
from experiments.papers._item import Item
from experiments.papers.bn import _fig1a as bn_fig1a
from experiments.papers.bn import _fig1b as bn_fig1b
from experiments.papers.bn import _tab1 as bn_tab1
from experiments.papers.lcw import _fig1 as lcw_fig1
from experiments.papers.lcw import _fig2 as lcw_fig2
from experiments.papers.lcw import _fig3 as lcw_fig3
from experiments.papers.lcw import _fig4 as lcw_fig4
from experiments.papers.normprop import _bound as normprop_bound
from experiments.papers.normprop import _jacobian as normprop_jacobian
from experiments.papers.vcl import _fig2 as vcl_fig2

_ALL: tuple[Item, ...] = (
    vcl_fig2.ITEM,
    lcw_fig1.ITEM,
    lcw_fig2.ITEM,
    lcw_fig3.ITEM,
    lcw_fig4.ITEM,
    normprop_jacobian.ITEM,
    normprop_bound.ITEM,
    bn_fig1a.ITEM,
    bn_fig1b.ITEM,
    bn_tab1.ITEM,
)

ITEMS: Mapping[str, Item] = MappingProxyType({item.name: item for item in _ALL})


def find_item(name: str) -> Item:
    """The item of a name; raises UserError with the near names for one that does not exist."""
    if name not in ITEMS:
        raise unknown("paper item", name, ITEMS)
    return ITEMS[name]
