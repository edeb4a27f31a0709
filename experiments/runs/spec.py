"""The spec of one training."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from experiments.config import Config

#: Settings that change no number: the devices, the reports, and the selection of a paper's cells.
#: ``nonfinite`` is one, so that a run that diverged may resume without the diverging updates.
FREE = frozenset(
    {"tensorboard", "nonfinite", "parallel", "mesh", "coordinator", "processes", "process_id"}
    | {"only_rows", "only_columns", "last"}
)

#: Settings by the names of their fields.
Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Spec:
    """One training: a method, a seed, data and settings.

    Attributes:
        method: the name of the method.
        seed: the seed of the split, the initialization, the batches and the noise.
        config: the settings that several specs share.
        changes: the settings of this spec alone, as (field, value).
        data: a checksum that tells the rows from those of another file of the same name.
    """

    method: str
    seed: int
    config: Config
    changes: Changes = ()
    data: Any = ""

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def name(self) -> str:
        """The name that the runs of all seeds share."""
        return name_of(self.method, self.changes)

    @property
    def described(self) -> dict[str, Any]:
        """All settings that decide the numbers; those that are None have no entry."""
        flags = asdict(self.config) | dict(self.changes)
        identity = {"method": self.method, "seed": self.seed, "data": self.data}
        kept = {name: value for name, value in flags.items() if name not in FREE}
        return {name: value for name, value in (kept | identity).items() if value is not None}

    @property
    def digest(self) -> str:
        """The key of the training in a store: a digest of all settings that decide the numbers."""
        text = json.dumps(self.described, sort_keys=True)
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def name_of(method: str, changes: Changes) -> str:
    """Returns the method's name with the changed settings."""
    return " ".join([method, *(f"{name}={shown(value)}" for name, value in changes)])


def shown(value: object) -> str:
    """Returns a setting as text; a number in six digits, or in as many as identify it."""
    if not isinstance(value, int | float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def own_settings(changes: Iterable[tuple[tuple[str, float], ...]]) -> tuple[str, ...]:
    """Returns the names of all changed fields."""
    return tuple(dict.fromkeys(name for each in changes for name, _ in each))
