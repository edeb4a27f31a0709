"""The papers' tables and figures by name: a new item is a new row."""

from collections.abc import Mapping
from types import MappingProxyType

from experiments.errors import unknown
from experiments.papers.bn import fig1a as bn_fig1a
from experiments.papers.bn import fig1b as bn_fig1b
from experiments.papers.bn import fig2ef as bn_fig2ef
from experiments.papers.bn import fig4 as bn_fig4
from experiments.papers.bn import tab1 as bn_tab1
from experiments.papers.bn import trainings as bn_trainings
from experiments.papers.cwo import radius as cwo_radius
from experiments.papers.cwo import signal as cwo_signal
from experiments.papers.cwo import tab1 as cwo_tab1
from experiments.papers.cwo import tab2 as cwo_tab2
from experiments.papers.cwo import tab3 as cwo_tab3
from experiments.papers.cwo import tab4 as cwo_tab4
from experiments.papers.cwo import tab5 as cwo_tab5
from experiments.papers.cwo import tab6 as cwo_tab6
from experiments.papers.item import Item
from experiments.papers.lcw import fig1 as lcw_fig1
from experiments.papers.lcw import fig2 as lcw_fig2
from experiments.papers.lcw import fig3 as lcw_fig3
from experiments.papers.lcw import fig4 as lcw_fig4
from experiments.papers.lcw import fig5 as lcw_fig5
from experiments.papers.lcw import tab1 as lcw_tab1
from experiments.papers.normprop import bound as normprop_bound
from experiments.papers.normprop import depth as normprop_depth
from experiments.papers.normprop import fig2 as normprop_fig2
from experiments.papers.normprop import figures as normprop_figures
from experiments.papers.normprop import jacobian as normprop_jacobian
from experiments.papers.normprop import speed as normprop_speed
from experiments.papers.normprop import tab1 as normprop_tab1
from experiments.papers.vcl import fig1 as vcl_fig1
from experiments.papers.vcl import fig2 as vcl_fig2
from experiments.papers.vcl import tab1 as vcl_tab1
from experiments.papers.vcl import tab2 as vcl_tab2
from experiments.papers.vcl import tab3 as vcl_tab3
from experiments.papers.vcl import uci as vcl_uci

_ALL: tuple[Item, ...] = (
    vcl_fig1.ITEM,
    vcl_fig2.ITEM,
    vcl_tab1.ITEM,
    vcl_tab2.ITEM,
    vcl_tab3.ITEM,
    vcl_uci.TAB4_ITEM,
    vcl_uci.TAB5_ITEM,
    vcl_uci.FIG3_ITEM,
    lcw_fig1.ITEM,
    lcw_fig2.ITEM,
    lcw_fig3.ITEM,
    lcw_fig4.ITEM,
    lcw_fig5.ITEM,
    lcw_tab1.TAB1,
    lcw_tab1.FIG6,
    cwo_signal.ITEM,
    cwo_tab1.ITEM,
    cwo_tab2.ITEM,
    cwo_tab3.ITEM,
    cwo_radius.ITEM,
    cwo_tab4.TAB4,
    cwo_tab4.FIG2,
    cwo_tab5.ITEM,
    cwo_tab6.ITEM,
    normprop_jacobian.ITEM,
    normprop_bound.ITEM,
    normprop_depth.ITEM,
    normprop_figures.FIG1,
    normprop_fig2.ITEM,
    normprop_figures.FIG3,
    normprop_figures.FIG4,
    normprop_tab1.ITEM,
    normprop_speed.ITEM,
    bn_fig1a.ITEM,
    bn_fig1b.ITEM,
    bn_tab1.ITEM,
    bn_trainings.FIG2AB,
    bn_trainings.FIG2CD,
    bn_fig2ef.ITEM,
    bn_trainings.FIG2GH,
    bn_trainings.FIG3,
    bn_fig4.ITEM,
)

ITEMS: Mapping[str, Item] = MappingProxyType({item.name: item for item in _ALL})


#: What stands for every item on the command line.
ALL = "all"


def find_items(name: str) -> list[Item]:
    """The item of a name, or all; raises UserError with the near names for an unknown one."""
    if name == ALL:
        return list(ITEMS.values())
    if name not in ITEMS:
        raise unknown("paper item", name, [*ITEMS, ALL])
    return [ITEMS[name]]
