"""Regularization in batch normalization: the items of Luo et al. 2019."""

from experiments.papers.bn.fig1 import FIG1A, FIG1B
from experiments.papers.bn.fig4 import FIG4
from experiments.papers.bn.tab1 import TAB1
from experiments.papers.bn.tables import FIG2AB, FIG2CD, FIG2EF, FIG2GH, FIG3

ITEMS = (FIG1A, FIG1B, TAB1, FIG2AB, FIG2CD, FIG2EF, FIG2GH, FIG3, FIG4)
