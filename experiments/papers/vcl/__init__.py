"""The variance constancy loss: the items of Littwin and Wolf 2018."""

from experiments.papers.vcl.fig1 import FIG1
from experiments.papers.vcl.fig2 import FIG2
from experiments.papers.vcl.tables import TAB1, TAB2, TAB3
from experiments.papers.vcl.uci import FIG3, TAB4, TAB5

ITEMS = (FIG1, FIG2, TAB1, TAB2, TAB3, TAB4, TAB5, FIG3)
