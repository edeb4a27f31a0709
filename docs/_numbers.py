"""In tables a figure stays on one line with its spread, its interval and its unit."""

import re
from typing import Any

#: A cell of a column that is aligned to the right, as those of figures are.
CELL = re.compile(r'(?<=<td style="text-align: right;">)[^<]+')
#: A space of a figure: none that parts the members of a list, but those within brackets.
SPACE = re.compile(r"(?<!,) |(?<=,) (?=[^\[]*\])")


def on_page_content(page_html: str, **kwargs: Any) -> str:
    """Makes these spaces such that no line ends there."""
    return CELL.sub(lambda cell: SPACE.sub("&nbsp;", cell[0]), page_html)
