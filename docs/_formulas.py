"""Formulas between dollars become MathML, which browsers show without scripts."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

#: What `pymdownx.arithmatex` leaves: an element with the formula in `\\(...\\)` or `\\[...\\]`.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(page_html: str, **kwargs: Any) -> str:
    """Replaces each formula of a page."""
    rendered = FORMULA.sub(mathml, page_html)
    assert 'class="arithmatex"' not in rendered, "a formula was left as it was written"
    return rendered


def mathml(found: re.Match[str]) -> str:
    """A formula in a line, or a displayed one, which scrolls where it is wider than the page."""
    _, bracket, latex = found.groups()
    displayed = bracket == "["
    formula = convert(html.unescape(latex.strip()), display="block" if displayed else "inline")
    return f'<div class="formula">{formula}</div>' if displayed else formula
