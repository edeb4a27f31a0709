"""What a paper's text states of a protocol, and where: data that `paper --check` reads."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Stated(NamedTuple):
    """One field of a protocol as the paper has it.

    Attributes:
        field: its name, as `experiments.papers.check` lists it.
        value: the paper's.
        place: the section, table or figure that states it.
        where: a regular expression that is found in the names of the cells it is said of.
    """

    field: str
    value: Any
    place: str
    where: str = ""


def says(place: str, fields: Mapping[str, Any], where: str = "") -> tuple[Stated, ...]:
    """Several fields that one place states."""
    return tuple(Stated(field, value, place, where) for field, value in fields.items())


#: The fields of stochastic gradient descent with momentum 0.9, as all five papers have it.
MOMENTUM = {"optimizer": "sgd, momentum 0.9"}
#: Half a cosine from the initial rate to 0.
COSINE = {"rate_schedule": "half a cosine"}
#: All training rows.
ALL_ROWS = {"rows": 0}


def tenth_at(*epochs: int) -> dict[str, Any]:
    """A tenth of the rate from each of these epochs on."""
    return {"rate_schedule": tuple((float(e), 0.1**n) for n, e in enumerate(epochs, 1))}


def halved_each(epochs: int, of: int) -> dict[str, Any]:
    """Half of the rate after each so many epochs."""
    return {
        "rate_schedule": tuple((float(e), 0.5 ** (e // epochs)) for e in range(epochs, of, epochs))
    }
