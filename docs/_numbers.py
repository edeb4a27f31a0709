"""Figures in tables that stay on one line, and names of code that break at their dots only."""

import re
from typing import Any

#: A cell of a column of figures, which is aligned to the right.
CELL = re.compile(r'(?<=<td style="text-align: right;">)[^<]+')
#: A name of code in a cell, and the places at which it may break.
NAME = re.compile(r"(?<=<code>)[^<\s]+(?=</code>)")
DOT = re.compile(r"(?<=[\w)])([./]|,)(?=\w)")
#: A space inside a figure: not after the comma of a list, except within brackets.
SPACE = re.compile(r"(?<!,) |(?<=,) (?=[^\[]*\])")


def on_page_content(page_html: str, **kwargs: Any) -> str:
    """Keeps figures on one line, and lets names break at dots, slashes and commas."""
    html = CELL.sub(lambda cell: SPACE.sub("&nbsp;", cell[0]), page_html)
    return NAME.sub(lambda name: DOT.sub(r"\1<wbr>", name[0]), html)
