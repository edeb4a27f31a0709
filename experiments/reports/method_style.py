"""The colour and the dashes of a method, the same in every picture."""

from typing import Any

from experiments.methods.table import METHODS
from experiments.reports.picture import COLOURS, line_style

#: Those that are compared most: solid lines, and no colour twice but for the eighth.
_FIRST = ("none", "bn", "cwo", "ln", "lcw", "normprop", "gn", "vcl", "rms", "dyt", "derf")

#: The place of each method in the palette.
_PLACES = {name: i for i, name in enumerate(dict.fromkeys((*_FIRST, *METHODS)))}


def method_style(name: str, place: int) -> dict[str, Any]:
    """Colour and dashes of a method; of what is no method, those of its place in the picture."""
    return line_style(_PLACES.get(name, place))


def bar_style(name: str, place: int) -> dict[str, Any]:
    """Colour and hatching of a bar, by the same rule."""
    index = _PLACES.get(name, place)
    hatch = ("", "//", "..", "xx")[index // len(COLOURS) % 4]
    return {"color": line_style(index)["color"], "hatch": hatch}
