"""A method with settings of its own, where the other settings are those of all methods."""

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
        return " ".join([self.method, *(f"{name}={value:g}" for name, value in self.changes)])
