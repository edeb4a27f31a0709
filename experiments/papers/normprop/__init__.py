"""Normalization propagation: the items of Arpit et al. 2016."""

from experiments.papers.normprop.bound import BOUND
from experiments.papers.normprop.depth import DEPTH
from experiments.papers.normprop.fig2 import FIG2
from experiments.papers.normprop.jacobian import JACOBIAN
from experiments.papers.normprop.tables import FIG1, FIG3, FIG4, SPEED, TAB1

ITEMS = (JACOBIAN, BOUND, DEPTH, FIG1, FIG2, FIG3, FIG4, TAB1, SPEED)
