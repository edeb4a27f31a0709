"""Constrained weight optimization: the items of Ikami et al. 2021."""

from experiments.papers.cwo import radius, signal, tab1, tab2, tab3, tab4, tab5, tab6

#: In the order of `paper --list`.
ITEMS = (
    *(signal.ITEM, tab1.ITEM, tab2.ITEM, tab3.ITEM, radius.ITEM),
    *(tab4.TAB4, tab4.FIG2, tab5.ITEM, tab6.ITEM),
)
