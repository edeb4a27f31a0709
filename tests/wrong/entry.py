"""One wrong input and what is said of it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.errors import UserError


class Wrong(NamedTuple):
    """A call that must fail, in one line that has three parts.

    Attributes:
        call: what is done, with an empty folder at hand.
        got: what the line says was given.
        wanted: what it says should have been.
        way_out: what it says to do.
        error: what is raised.
    """

    call: Callable[[Path], object]
    got: str
    wanted: str
    way_out: str
    error: type[Exception] = UserError


#: Entries by what is wrong.
Walk = dict[str, Wrong]
