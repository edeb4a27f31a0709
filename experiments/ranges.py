"""The ranges of numeric settings, declared in their annotations."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from experiments.errors import UserError


class Range(NamedTuple):
    """The range of a number; NaN is in no range.

    Attributes:
        least: the smallest number.
        most: the largest number; beyond it lie typing errors.
        without: an end that does not belong to the range.
    """

    least: float
    most: float
    without: float | None = None

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, (int, float))
            and self.least <= value <= self.most
            and value != self.without
        )

    def __str__(self) -> str:
        if self.without is None:
            return f"{self.least:,} to {self.most:,}"
        low = "more than" if self.without == self.least else "at least"
        high = "less than" if self.without == self.most else "at most"
        return f"{low} {self.least:,} and {high} {self.most:,}"


#: The types of several settings.
Count = Annotated[int, Range(1, 2**31 - 1)]
Strength = Annotated[float, Range(0, 1000)]
Epochs = Annotated[int, Range(1, 10**6)]
Jobs = Annotated[int, Range(1, 1024)]
Depth = Annotated[int, Range(1, 1000)]
Width = Annotated[int, Range(1, 2**20)]
Channels = Annotated[int, Range(1, 2**16)]


@functools.cache
def ranges_of(record: type) -> Mapping[str, Range]:
    """Returns the range of each numeric setting of a dataclass, from its annotation."""
    hints = get_type_hints(record, include_extras=True)
    ranges = {name: _range_in(hint) for name, hint in hints.items()}
    return {name: range for name, range in ranges.items() if range is not None}


def _range_in(hint: Any) -> Range | None:
    """Returns the range in an annotation, which may be that of an optional number."""
    if isinstance(hint, Range):
        return hint
    return next(filter(None, map(_range_in, get_args(hint))), None)


def check_ranges(flags: Any) -> None:
    """Raises UserError for the first flag of a command that is out of its range, or blank.

    Args:
        flags: the dataclass of a command, whose fields are flags or groups of flags. None stands
            for a flag left out; text that is empty by default may be empty.
    """
    ranges = ranges_of(flags.__class__)
    for field in dataclasses.fields(flags):
        value, wanted = getattr(flags, field.name), ranges.get(field.name)
        if dataclasses.is_dataclass(value):
            check_ranges(value)
        if wanted is not None and value is not None and value not in wanted:
            raise _wrong(field, value, str(wanted))
        if isinstance(value, str) and field.default != "" and not value.strip(" ,"):
            raise _wrong(field, repr(value), "a name or a path")


def _wrong(field: dataclasses.Field[Any], value: object, wanted: str) -> UserError:
    flag = f"--{field.name.replace('_', '-')}"
    usual = "" if field.default is None else f", and it is {field.default}"
    return UserError(
        f"{flag} is {value}; wanted {wanted}: give such a value, or leave the flag out{usual}."
    )
