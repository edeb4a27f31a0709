"""The grid of values to try, read from the arguments of ``--tune``."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import get_args, get_type_hints

from experiments.config import OF_PARTS, Config
from experiments.errors import UserError, unknown
from experiments.methods.method import Method
from experiments.ranges import RANGES, missed_range
from experiments.runs.spec import Changes

#: The values to try, by field of the settings.
Grid = Mapping[str, Sequence[float]]

WANTED = "wanted NAME=VALUE,VALUE,..., for example --tune learning-rate=0.05,0.1,0.2 noise=0,0.1"

#: Settings of the length of a run, its data and devices, which all trials share.
_SHARED = {"epochs", "train_rows", "test_rows", "resize", "processes", "process_id", "join_timeout"}


def grid_of(written: Sequence[str]) -> Grid:
    """Reads the values by name.

    Args:
        written: arguments ``NAME=VALUE,VALUE,...`` with names of flags.

    Raises:
        UserError: for a malformed argument, an unknown name, a value out of the flag's range, or a
            repeated name or value.
    """
    grid: dict[str, Sequence[float]] = {}
    for entry in written:
        flag, _, values = entry.partition("=")
        name = flag.strip().removeprefix("--").replace("-", "_")
        kinds = _tunable()
        if name not in kinds:
            known = [each.replace("_", "-") for each in kinds]
            raise unknown("setting to tune", flag, known)
        if name in grid:
            raise UserError(f"--tune has {flag} twice; give all of its values at once.")
        grid[name] = [_number(entry, name, text, kinds[name]) for text in values.split(",")]
        if len(set(grid[name])) < len(grid[name]):
            raise UserError(f"--tune has {entry!r}, with a value twice; give each value once.")
    return grid


def combinations(method: Method, grid: Grid) -> list[Changes]:
    """Returns every combination of the values whose settings the method has."""
    fields = {each.name for part in method.parts for each in dataclasses.fields(part)}
    names = [name for name in grid if name in fields or name not in OF_PARTS]
    products = itertools.product(*(grid[name] for name in names))
    return [tuple(zip(names, values, strict=True)) for values in products]


def _tunable() -> dict[str, type]:
    """Returns the number types of all numeric settings of the network, training and methods."""
    hints = get_type_hints(Config).items()
    kinds = {name: {hint, *get_args(hint)} for name, hint in hints if name in RANGES}
    return {
        name: float if float in kind else int for name, kind in kinds.items() if name not in _SHARED
    }


def _number(entry: str, name: str, text: str, kind: type) -> float:
    try:
        value: float = kind(text)
    except ValueError:
        raise UserError(
            f"--tune has {entry!r}, and {text!r} is no {kind.__name__}; {WANTED}."
        ) from None
    if wanted := missed_range(name, value):
        raise UserError(f"--tune has {entry!r}; wanted values, each {wanted}.")
    return value
