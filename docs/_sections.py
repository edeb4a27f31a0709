"""How the docstrings' sections are meant, for the parser of the site, which reads them its own way.

``Example:`` is code (it knows ``Examples:``), and a colon in what is returned ends no type.
"""

import re
from typing import Any

import griffe


class Sections(griffe.Extension):
    """Rewrites two headings while the site is built."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object of the library once it is read."""
        if obj.docstring:
            text = obj.docstring.value.replace("Example:\n", "Examples:\n")
            # An empty type: the signature's is shown.
            obj.docstring.value = re.sub(r"(\bReturns:\n +)", r"\1: ", text)
