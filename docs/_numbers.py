"""Figures in tables that stay on one line with their spread, their interval and their unit."""

import re
from typing import Any

#: A cell of a column of figures, which is aligned to the right.
CELL = re.compile(r'(?<=<td style="text-align: right;">)[^<]+')
#: A space inside a figure: not after the comma of a list, except within brackets.
SPACE = re.compile(r"(?<!,) |(?<=,) (?=[^\[]*\])")


def on_page_content(page_html: str, **kwargs: Any) -> str:
    """Makes the spaces of figures non-breaking."""
    return CELL.sub(lambda cell: SPACE.sub("&nbsp;", cell[0]), page_html)
