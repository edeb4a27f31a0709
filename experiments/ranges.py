"""The ranges of numeric settings by name: one table for every command."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from experiments.errors import UserError


class Range(NamedTuple):
    """The numbers that a setting may be; NaN is in no range.

    Attributes:
        least: the smallest one.
        most: the largest one: what is beyond it is a slip of the hand, not a setting.
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
        low, high = ("more than " * (end == self.without) for end in (self.least, self.most))
        return f"{low}{self.least:,} to {high.replace('more', 'less')}{self.most:,}"


_COUNT = Range(1, 2**31 - 1)
_STRENGTH = Range(0, 1000)

#: The range of each setting, by the name of its field.
RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "depth": Range(1, 1000),
        "width": Range(1, 2**20),
        "channels": Range(1, 2**16),
        **dict.fromkeys(("epochs", "tune_epochs"), Range(1, 10**6)),
        "seeds": Range(1, 10**4),
        "seed": Range(0, 2**32 - 1),
        "jobs": Range(1, 1024),
        "repeats": Range(1, 10**6),
        **dict.fromkeys(("batch_size", "ghost_groups", "accumulate", "probes"), _COUNT),
        **dict.fromkeys(("refresh_every", "population_rows", "train_rows", "test_rows"), _COUNT),
        **dict.fromkeys(("checkpoint_every", "keep", "resume_from", "processes"), _COUNT),
        "checkpoint_seconds": Range(0, 10**6),
        "process_id": Range(0, 2**31 - 1),
        "sample_size": Range(2, 2**31 - 1),
        # As far as float32 goes: whether a run diverges is told when it does.
        "learning_rate": Range(0, 3e38, without=0),
        "vcl_clip": Range(0, 10**6, without=0),
        "dropout": Range(0, 1, without=1),
        **dict.fromkeys(("weight_decay", "noise", "vcl_weight", "decay_times"), _STRENGTH),
    }
)


def check_ranges(flags: Any) -> None:
    """Raises UserError for the first flag of a command that is out of its range, or blank.

    Args:
        flags: the dataclass of a command; its fields are the flags. None is a flag left out, and
            text that is empty by default may be empty.
    """
    for field in dataclasses.fields(flags):
        value, wanted = getattr(flags, field.name), RANGES.get(field.name)
        if wanted is not None and value is not None and value not in wanted:
            raise _wrong(field, value, str(wanted))
        if isinstance(value, str) and field.default != "" and not value.strip(" ,"):
            raise _wrong(field, repr(value), "a name or a path")


def _wrong(field: dataclasses.Field[Any], value: object, wanted: str) -> UserError:
    flag = f"--{field.name.replace('_', '-')}"
    usual = "its default" if field.default is None else field.default
    return UserError(f"{flag} is {value}; wanted {wanted}: leave it out for {usual}.")
