"""Wrong inputs of the experiments, with the parts of the message that each gets."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Wrong(NamedTuple):
    """A call that raises a `UserError` of one line.

    Attributes:
        call: the call, given an empty folder.
        named: parts of the message: the file, the flag or the argument, and its value.
    """

    call: Callable[[Path], object]
    named: tuple[str, ...]


#: Wrong inputs by name.
Walk = dict[str, Wrong]
