"""Box plots as the paper draws them: whiskers at the 1% and 99% quantiles."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments.reports.picture import COLOURS


def draw_boxes(
    axes: Axes, values: Float[np.ndarray, "groups ..."], group: str, quantity: str
) -> None:
    """One box for each of the groups, numbered from 1."""
    flat = values.reshape(len(values), -1)
    axes.boxplot(list(flat), whis=(1, 99), showfliers=False, medianprops={"color": COLOURS[2]})
    ticks = np.arange(1, len(flat) + 1)
    axes.set_xticks(ticks, [str(tick) if tick == 1 or tick % 5 == 0 else "" for tick in ticks])
    axes.set(xlabel=group, ylabel=quantity)
