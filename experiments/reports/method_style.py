"""The colour and the dashes of each method, shared by all pictures."""

from typing import Any

from experiments.methods.table import METHODS
from experiments.reports.picture import COLOURS, line_style

#: The methods that are compared most often: the first seven have solid lines in distinct colours.
_FIRST = ("none", "bn", "cwo", "ln", "lcw", "normprop", "gn", "vcl", "rms", "dyt", "derf")

#: The place of each method in the palette.
_PLACES = {name: i for i, name in enumerate(dict.fromkeys((*_FIRST, *METHODS)))}


def method_style(name: str, place: int) -> dict[str, Any]:
    """Returns the colour and dashes of a method; of an unknown name, those of its place."""
    return line_style(_PLACES.get(name, place))


def bar_style(name: str, place: int) -> dict[str, Any]:
    """Returns the colour and hatching of a bar, by the rule of `method_style`."""
    index = _PLACES.get(name, place)
    hatch = ("", "//", "..", "xx")[index // len(COLOURS) % 4]
    return {"color": line_style(index)["color"], "hatch": hatch}
