"""Arpit et al. 2016: normalization propagation."""

from experiments.papers.normprop import bound, depth, fig2, figures, jacobian, speed, tab1

#: In the order of `paper --list`.
ITEMS = (
    *(jacobian.ITEM, bound.ITEM, depth.ITEM, figures.FIG1, fig2.ITEM),
    *(figures.FIG3, figures.FIG4, tab1.ITEM, speed.ITEM),
)
