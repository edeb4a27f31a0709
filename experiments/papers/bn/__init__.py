"""Luo et al. 2019: regularization in batch normalization."""

from experiments.papers.bn import fig1a, fig1b, fig2ef, fig4, tab1, trainings

#: In the order of `paper --list`.
ITEMS = (
    *(fig1a.ITEM, fig1b.ITEM, tab1.ITEM, trainings.FIG2AB, trainings.FIG2CD, fig2ef.ITEM),
    *(trainings.FIG2GH, trainings.FIG3, fig4.ITEM),
)
