"""Adapts the sections of docstrings to the parser of the site.

The parser expects ``Examples:`` for ``Example:``, and takes a colon under ``Returns:`` for the end
of a type.
"""

import re
from typing import Any

import griffe


class Sections(griffe.Extension):
    """Rewrites two headings of each docstring while the site is built."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object of the library after it is parsed."""
        if obj.docstring:
            text = obj.docstring.value.replace("Example:\n", "Examples:\n")
            # An empty type, so that the site shows that of the signature.
            obj.docstring.value = re.sub(r"(\bReturns:\n +)", r"\1: ", text)
