"""One training, wholly described."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from experiments.config import Config

#: Settings that change no number: where a training is computed and what it tells meanwhile, and
#: which trainings a paper's table wants. One that diverged may go on from its last good checkpoint
#: without the updates that did it.
FREE = frozenset(
    {"tensorboard", "nonfinite", "parallel", "mesh", "coordinator", "processes", "process_id"}
    | {"only_rows", "only_columns", "last"}
)

#: Settings by the names of their fields.
Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Spec:
    """What is trained, on what, how, and under which seed.

    Attributes:
        method: its name.
        seed: of the split, the initialization, the batches and the noise.
        config: the settings that several specs share.
        changes: the settings that this one has for itself, as (field, value).
        data: what tells the rows from those of another file of the same name.
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
        """What the runs under all seeds are called."""
        return name_of(self.method, self.changes)

    @property
    def described(self) -> dict[str, Any]:
        """All that decides the numbers; settings that are left out have no entry."""
        flags = asdict(self.config) | dict(self.changes)
        own = {"method": self.method, "seed": self.seed, "data": self.data}
        kept = {name: value for name, value in flags.items() if name not in FREE}
        return {name: value for name, value in (kept | own).items() if value is not None}

    @property
    def digest(self) -> str:
        """What names the training in a store: equal where all that decides the numbers is."""
        text = json.dumps(self.described, sort_keys=True)
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def name_of(method: str, changes: Changes) -> str:
    """A method with the settings that it has for itself."""
    return " ".join([method, *(f"{name}={shown(value)}" for name, value in changes)])


def shown(value: object) -> str:
    """A setting; a number in six digits, or in as many as tell it from every other."""
    if not isinstance(value, int | float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def own_settings(changes: Iterable[tuple[tuple[str, float], ...]]) -> tuple[str, ...]:
    """The fields in which any of several runs differs from the others' settings."""
    return tuple(dict.fromkeys(name for each in changes for name, _ in each))
