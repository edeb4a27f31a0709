"""The flags of parts: a field of a part names the flag that sets it."""

from dataclasses import field, fields, replace
from typing import Any

from experiments.methods.method import Method
from experiments.methods.part import Part


def flag(default: Any, name: str) -> Any:
    """A field of a part that the command line can set.

    Args:
        default: the field's value if nobody sets it.
        name: of a field of `experiments.methods.overrides.Overrides`, which has its range and its
            words; parts may share one.
    """
    return field(default=default, metadata={"flag": name})


def adjusted(method: Method, flags: Any) -> Method:
    """The method with the settings that a user gave, in the parts that have them.

    Args:
        method: any.
        flags: has the fields of `Overrides`.
    """
    return replace(method, parts=tuple(_adjusted(part, flags) for part in method.parts))


def _adjusted(part: Part, flags: Any) -> Part:
    named = {each.name: each.metadata.get("flag") for each in fields(part)}
    given = {name: getattr(flags, flag, None) for name, flag in named.items() if flag}
    return replace(part, **{name: value for name, value in given.items() if value is not None})
