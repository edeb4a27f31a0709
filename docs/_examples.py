"""Docstrings say ``Example:``; the site's parser knows ``Examples:`` as code to show as code."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section while the site is built."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object of the library once it is read."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
