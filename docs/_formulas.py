"""Conversion of formulas between dollars to MathML, which browsers show without scripts."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

#: The element that `pymdownx.arithmatex` makes of a formula: `\\(...\\)` or `\\[...\\]`.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(page_html: str, **kwargs: Any) -> str:
    """Replaces each formula of a page."""
    rendered = FORMULA.sub(mathml, page_html)
    converted = 'class="arithmatex"' not in rendered and "$$" not in rendered
    assert converted, "a formula was not converted"
    return rendered


def mathml(element: re.Match[str]) -> str:
    """Converts a formula, in a line or displayed; displayed ones scroll if they are too wide."""
    _, bracket, latex = element.groups()
    displayed = bracket == "["
    formula = convert(html.unescape(latex.strip()), display="block" if displayed else "inline")
    return f'<div class="formula">{formula}</div>' if displayed else formula
