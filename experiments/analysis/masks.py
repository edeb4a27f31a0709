"""The picture of label maps: test images, their truth, and the predictions of each method."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Integer
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from experiments.analysis.picture import COLOURS, new_figure, picture
from experiments.runs.files import write_whole

#: The side of an image in inches.
INCHES = 1.7

#: The colours of classes by their number: black for the first, which is often the background.
PALETTE = (*COLOURS, "#F0E442")

#: The most classes that a legend names.
NAMED = 8

Images = Float[np.ndarray, "images height width channels"]
Maps = Integer[np.ndarray, "images height width"]


def draw_masks(
    path: Path, images: Images, truth: Maps, predicted: Mapping[str, Maps], classes: Sequence[str]
) -> None:
    """Writes a PNG with a row per image: the image, its true map, and each method's.

    Args:
        path: the file to write.
        images: images, standardized or not.
        truth: their label maps.
        predicted: label maps by method.
        classes: the names of the classes.
    """
    columns = {"image": images, "truth": truth, **predicted}
    count = len(truth)
    figure = new_figure(len(columns), count, width=INCHES, height=INCHES)
    grid = np.array(figure.axes).reshape(count, len(columns))
    for place, (name, pictures) in zip(grid.T, columns.items(), strict=True):
        place[0].set_title(name, fontsize=10, parse_math=False)
        for axes, each in zip(place, pictures, strict=True):
            _show(axes, each, len(classes))
    if len(classes) <= NAMED:
        patches = [
            Patch(color=colour, label=name)
            for name, colour in zip(classes, _colours(len(classes)), strict=True)
        ]
        figure.legend(handles=patches, loc="outside lower center", ncols=len(classes))
    write_whole(path, picture(figure))


def _show(axes: Axes, pixels: np.ndarray, classes: int) -> None:
    """Shows an image (height, width, channels), or a label map (height, width) in colours."""
    axes.set_axis_off()
    if pixels.ndim == 2:
        colours = ListedColormap(_colours(classes))
        axes.imshow(pixels, cmap=colours, vmin=-0.5, vmax=classes - 0.5, interpolation="nearest")
        return
    shown = pixels if pixels.shape[-1] == 3 else pixels.mean(-1)
    low, high = np.percentile(shown, (1, 99))
    scaled = np.clip((shown - low) / max(high - low, 1e-12), 0, 1)
    axes.imshow(scaled, cmap="gray", vmin=0, vmax=1, interpolation="nearest")


def _colours(classes: int) -> list[str]:
    """Returns the colour of each class, distinct ones for as many as the palette has."""
    if classes <= len(PALETTE):
        return list(PALETTE[:classes])
    hues = mpl.colormaps["turbo"](np.linspace(0, 1, classes - 1))
    return [PALETTE[0], *(mpl.colors.to_hex(hue) for hue in hues)]
