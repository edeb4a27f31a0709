"""The style of pictures, and pictures as bytes."""

import io
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.runs.outputs import SOFTWARE

# Okabe and Ito's palette, which stays distinct with any kind of colour vision. Yellow is left out,
# because it is too pale for lines. Line styles distinguish lines of the same colour.
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
    """Returns the colour of a line by its index; colours repeat."""
    return COLOURS[index % len(COLOURS)]


def line_style(index: int) -> dict[str, Any]:
    """Returns the colour and dashes of a line by its index: dashes change when colours repeat."""
    return {"color": colour_of(index), "linestyle": STYLES[index // len(COLOURS) % len(STYLES)]}


def new_figure(
    columns: int = 1, rows: int = 1, *, width: float = 5.5, height: float = 4.4
) -> Figure:
    """Makes a figure of rows x columns axes of ``width`` x ``height`` inches in the house style.

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
    """Draws a line per name, over 1, 2, ... or ``x``, in the colours from index ``first`` on."""
    for index, (name, values) in enumerate(lines.items(), first):
        places = np.arange(1, len(values) + 1) if x is None else x
        axes.plot(places, values, form, color=colour_of(index), label=name)
    axes.legend(fontsize=9)


def draw_band(
    axes: Axes, x: Any, values: Float[np.ndarray, "runs n"], middle: Any, label: str, **style: Any
) -> None:
    """Draws a line through the middle of some runs, and a band from the least to the largest."""
    axes.plot(x, middle, label=label, **style)
    if len(values) > 1:
        ends = np.fmin.reduce(values), np.fmax.reduce(values)
        axes.fill_between(x, *ends, color=style["color"], alpha=0.15, linewidth=0)


def picture(figure: Figure) -> bytes:
    """Returns the figure as PNG."""
    content = io.BytesIO()
    with mpl.rc_context(STYLE):
        canvas: Any = figure.canvas
        canvas.print_png(content, metadata={"Software": SOFTWARE})
    return content.getvalue()
