"""One wrong input and what must be said of it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.errors import UserError


class Wrong(NamedTuple):
    """A call that must fail, in one line.

    Attributes:
        call: what is done, with an empty folder at hand.
        named: what the line must name: the file, the flag or the argument, and its value.
        error: what is raised.
    """

    call: Callable[[Path], object]
    named: tuple[str, ...]
    error: type[Exception] = UserError


#: Entries by what is wrong.
Walk = dict[str, Wrong]
