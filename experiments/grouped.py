"""The flags of a command in groups, as its help shows them.

A command is a flat record, which is what training, papers and checkpoints take; tyro makes a group
of a record in a record. So it is given one record a group, and the flat one is made of what it
read.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, make_dataclass
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tyro.conf import OmitArgPrefixes, arg

from experiments.config import Config
from experiments.methods.overrides import Overrides
from experiments.settings import Settings, Source

_NETWORK = ("model", "activation", "depth", "width", "channels", "constrain_head")

#: The groups of a command that trains, in the order of its help; what is in none is its own.
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "data": (*(each.name for each in fields(Source)), "augment"),
        "network": _NETWORK,
        "training": tuple(
            each.name for each in fields(Config) if each.name not in (*_NETWORK, "augment")
        ),
        "parts": tuple(each.name for each in fields(Overrides)),
        "devices": ("parallel", "mesh", "coordinator", "processes", "process_id"),
    }
)

#: What stands above a group; the first holds a command's own flags.
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "run": "What is run, and where its files go.",
        "data": "What is trained on.",
        "network": "What is trained.",
        "training": "How it is trained.",
        "parts": "Settings of the methods' parts; a flag that is left out keeps the method's own.",
        "devices": "Where it is trained.",
    }
)


def grouped(command: type[Settings]) -> type:
    """A record of one record a group, each with the flags of the command that belong to it."""
    own = [each.name for each in fields(command)]
    placed = {name for names in GROUPS.values() for name in names}
    groups = {"run": tuple(name for name in own if name not in placed), **GROUPS}
    types, words = get_type_hints(command, include_extras=True), said(command)
    kept = {each.name: each for each in fields(command)}
    members = []
    for title, names in groups.items():
        flags = [
            (name, _shown(types[name], words.get(name)), _default(kept[name])) for name in names
        ]
        made: Any = make_dataclass(title.capitalize(), flags, frozen=True)
        made.__doc__ = TITLES[title]
        plain = OmitArgPrefixes[made]
        members.append((title, plain, field(default_factory=made)))
    record: Any = make_dataclass(command.__name__, members, frozen=True)
    record.__doc__ = command.__doc__
    record.command = command
    kind: type = record
    return kind


def flat(parsed: Any) -> Any:
    """The command itself, of what tyro read; one without groups as it is."""
    command = getattr(parsed, "command", None)
    if command is None:
        return parsed
    groups = [getattr(parsed, each.name) for each in fields(parsed)]
    return command(
        **{each.name: getattr(group, each.name) for group in groups for each in fields(group)}
    )


def said(command: type) -> dict[str, str]:
    """The docstrings of a record's fields, those of its bases too."""
    found: dict[str, str] = {}
    for kind in reversed(command.__mro__[:-1]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        except OSError:  # a record that no file declares
            continue
        assert isinstance(tree, ast.ClassDef)
        for line, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(line, ast.AnnAssign) and isinstance(after, ast.Expr):
                found[ast.unparse(line.target)] = " ".join(ast.literal_eval(after.value).split())
    return found


def _shown(kind: Any, words: str | None) -> Any:
    """A field's type with its words, unless it says them itself or is no flag."""
    says = get_origin(kind) is Annotated and any(hasattr(m, "help") for m in get_args(kind)[1:])
    return kind if words is None or says else Annotated[kind, arg(help=words)]


def _default(kept: "Field[Any]") -> Any:
    assert kept.default is not MISSING
    return field(default=kept.default)
