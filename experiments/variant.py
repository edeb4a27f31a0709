"""A method with settings of its own, where the other settings are those of all methods."""

from collections.abc import Iterable
from typing import NamedTuple


class Variant(NamedTuple):
    """What a comparison trains.

    Attributes:
        method: its name.
        changes: the settings in which it differs, as (field, value).
    """

    method: str
    changes: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        return " ".join([self.method, *(f"{name}={shown(value)}" for name, value in self.changes)])


def shown(value: float) -> str:
    """A setting in six digits, or in as many as tell it from every other."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def own_settings(changes: Iterable[tuple[tuple[str, float], ...]]) -> tuple[str, ...]:
    """The fields in which any of several runs differs from the others' settings."""
    return tuple(dict.fromkeys(name for each in changes for name, _ in each))
