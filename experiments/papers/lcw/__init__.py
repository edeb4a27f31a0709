"""Kutsuna 2019: linearly constrained weights."""

from experiments.papers.lcw import fig1, fig2, fig3, fig4, fig5, tab1

#: In the order of `paper --list`.
ITEMS = (fig1.ITEM, fig2.ITEM, fig3.ITEM, fig4.ITEM, fig5.ITEM, tab1.TAB1, tab1.FIG6)
