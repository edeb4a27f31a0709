"""How pictures look, and pictures as bytes."""

import io
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Okabe and Ito's palette, which stays distinct with any kind of colour vision; yellow is left out,
# being too pale for lines. Line styles tell apart what comes after one round of it.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("-", "--", ":", "-.")

STYLE: Any = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.8,
}


def colour_of(index: int) -> str:
    """The colour of a line by its place, from the first again after the last."""
    return COLOURS[index % len(COLOURS)]


def line_style(index: int) -> dict[str, Any]:
    """Colour and dashes of a line by its place: dashes change where the colours begin again."""
    return {"color": colour_of(index), "linestyle": STYLES[index // len(COLOURS) % len(STYLES)]}


def new_figure(
    columns: int = 1, rows: int = 1, *, width: float = 5.5, height: float = 4.4
) -> Figure:
    """A figure of rows x columns axes (``figure.axes``) in the house style, each so large.

    It belongs to no global state: nothing needs closing, and no display is needed.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        figure.subplots(rows, columns)
    return figure


def draw_lines(
    axes: Axes, lines: Mapping[str, Any], form: str = "-", *, x: Any = None, first: int = 0
) -> None:
    """A line for each, over 1, 2, ... if nothing else, in the colours from that place on."""
    for index, (name, values) in enumerate(lines.items(), first):
        places = np.arange(1, len(values) + 1) if x is None else x
        axes.plot(places, values, form, color=colour_of(index), label=name)
    axes.legend(fontsize=9)


def draw_band(
    axes: Axes, x: Any, values: Float[np.ndarray, "runs n"], middle: Any, label: str, **style: Any
) -> None:
    """A line through the middle of some runs, and a band from the least to the largest."""
    axes.plot(x, middle, label=label, **style)
    if len(values) > 1:
        ends = np.fmin.reduce(values), np.fmax.reduce(values)
        axes.fill_between(x, *ends, color=style["color"], alpha=0.15, linewidth=0)


def picture(figure: Figure) -> bytes:
    """The figure as PNG."""
    content = io.BytesIO()
    with mpl.rc_context(STYLE):
        canvas: Any = figure.canvas
        canvas.print_png(content)
    return content.getvalue()
