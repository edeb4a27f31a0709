"""The flags of parts: a field of a part is declared once, with its flag and help beside it."""

from collections.abc import Iterable
from dataclasses import field, fields, make_dataclass, replace
from typing import Annotated, Any, get_type_hints

from tyro.conf import arg

from experiments.methods.method import Method
from experiments.methods.part import Part


def flag(default: Any, name: str, help: str) -> Any:
    """A field of a part that the command line can set.

    Args:
        default: the field's value if nobody sets it; its annotation holds the range of a number.
        name: of the flag, with underscores; parts may share one.
        help: a sentence without its end.
    """
    return field(default=default, metadata={"flag": name, "help": help})


def record_of_flags(name: str, module: str, kinds: Iterable[type[Part]]) -> type:
    """A frozen dataclass with the flags of some parts; None keeps what the method says.

    Args:
        name: of the class.
        module: where it is assigned to that name.
        kinds: of parts.
    """
    found: dict[str, Any] = {}
    for kind in kinds:
        types = get_type_hints(kind, include_extras=True)
        for each in fields(kind):
            if "flag" in each.metadata:
                help = f"{each.metadata['help']}."
                optional = types[each.name] | None
                kept = Annotated[optional, arg(help=help)]  # type: ignore[valid-type]  # made here
                found.setdefault(each.metadata["flag"], (kept, field(default=None)))
    members = [(flag, kept, default) for flag, (kept, default) in found.items()]
    record = make_dataclass(name, members, frozen=True)
    record.__module__ = module
    return record


def adjusted(method: Method, flags: Any) -> Method:
    """The method with the settings that a user gave, in the parts that have them.

    Args:
        method: any.
        flags: has the fields of `record_of_flags`.
    """
    return replace(method, parts=tuple(_adjusted(part, flags) for part in method.parts))


def _adjusted(part: Part, flags: Any) -> Part:
    named = {each.name: each.metadata.get("flag") for each in fields(part)}
    given = {name: getattr(flags, flag, None) for name, flag in named.items() if flag}
    return replace(part, **{name: value for name, value in given.items() if value is not None})
