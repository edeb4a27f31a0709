"""Constrained weight optimization: the items of Ikami et al. 2021."""

from experiments.papers.cwo.signal import SIGNAL
from experiments.papers.cwo.tables import FIG2, RADIUS, TAB1, TAB2, TAB3, TAB4, TAB5, TAB6

ITEMS = (SIGNAL, TAB1, TAB2, TAB3, RADIUS, TAB4, FIG2, TAB5, TAB6)
