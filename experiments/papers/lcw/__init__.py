"""Linearly constrained weights: the items of Kutsuna 2019."""

from experiments.papers.lcw.fig1 import FIG1
from experiments.papers.lcw.fig4 import FIG4
from experiments.papers.lcw.sigmoid import FIG2, FIG3
from experiments.papers.lcw.tables import FIG5, FIG6, TAB1

ITEMS = (FIG1, FIG2, FIG3, FIG4, FIG5, TAB1, FIG6)
