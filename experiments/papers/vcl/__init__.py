"""Littwin and Wolf 2018: the variance constancy loss."""

from experiments.papers.vcl import fig1, fig2, tab1, tab2, tab3, uci

#: In the order of `paper --list`.
ITEMS = (fig1.ITEM, fig2.ITEM, tab1.ITEM, tab2.ITEM, tab3.ITEM, *uci.ITEMS)
