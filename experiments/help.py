"""The text of the help: tyro keeps the line breaks of docstrings unless they are joined here."""

import ast
import inspect
import textwrap
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any


def with_words(command: Any) -> Any:
    """Attaches the docstrings of flags, and of those in groups, to them as one line each."""
    for kind in filter(is_dataclass, command.__mro__):
        for name, words in _words(kind).items():
            flag = kind.__dataclass_fields__[name]
            flag.metadata = MappingProxyType({**flag.metadata, "help": " ".join(words.split())})
    for group in fields(command):
        if is_dataclass(group.default_factory):
            with_words(group.default_factory)
    return command


def description(command: Any) -> str:
    """Wraps a command's docstring to the width of the flags.

    tyro joins lines, except those that begin with a space.
    """
    paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
    fill = partial(textwrap.fill, width=80, subsequent_indent=" ", break_on_hyphens=False)
    return "\n\n".join(map(fill, paragraphs))


def _words(kind: Any) -> dict[str, str]:
    """Returns the string below each field of a class, by the field's name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    texts = {}
    for pair in pairwise(getattr(tree.body[0], "body", [])):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                texts[name] = words
    return texts
