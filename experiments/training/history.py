"""The results of a run so far, which checkpoints keep."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, get_type_hints, runtime_checkable

from experiments.training.state import TrainState

Record = TypeVar("Record")

#: The types of JSON values by a field's annotation; true and false are not numbers.
_PLAIN: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,)}


def record_of(kind: type[Record], values: dict[str, Any]) -> Record:
    """Makes a NamedTuple of numbers and text from JSON's values; raises TypeError for others."""
    for name, hint in get_type_hints(kind).items():
        value = values[name]
        if not isinstance(value, _PLAIN[hint]) or isinstance(value, bool):
            raise TypeError(f"its {name} is {value!r}, not {hint.__name__}")
    return kind(**values)


class Epoch(NamedTuple):
    """Results of one epoch.

    Attributes:
        epoch: the number of the epoch, from 1.
        train_loss: the mean over the epoch's steps, each before its update.
        train_accuracy: the mean over the epoch's steps; a fraction.
        test_loss: the loss after the epoch, in evaluation mode.
        test_accuracy: the accuracy after the epoch, in evaluation mode; a fraction.
        gradient_norm: the norm of the whole gradient, the mean over the epoch's steps.
        parameter_norm: the norm of all raw parameters after the epoch.
        drift: the distance of constrained kernels from their set after the epoch; 0 if the method
            constrains nothing.
    """

    epoch: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    gradient_norm: float = math.nan
    parameter_norm: float = math.nan
    drift: float = math.nan

    @classmethod
    def of_list(cls, saved: Sequence[Any]) -> "Epoch":
        """Makes an entry from a list of JSON's numbers."""
        return record_of(cls, dict(zip(cls._fields, saved, strict=True)))


class History(NamedTuple):
    """The finished epochs of a run.

    Attributes:
        curve: one entry per epoch.
        seconds: the seconds of each epoch's steps, evaluation excluded.
    """

    curve: tuple[Epoch, ...] = ()
    seconds: tuple[float, ...] = ()

    def after(self, entry: Epoch, seconds: float) -> "History":
        """Returns the history with one more epoch."""
        return History((*self.curve, entry), (*self.seconds, seconds))

    def to_json(self) -> dict[str, Any]:
        """Returns lists of numbers; floats survive exactly."""
        return {"curve": [list(entry) for entry in self.curve], "seconds": list(self.seconds)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "History":
        """Inverts `to_json`; raises for values that no run can have."""
        curve = tuple(Epoch.of_list(entry) for entry in saved["curve"])
        seconds = tuple(0.0 + value for value in saved["seconds"])
        for number, entry in enumerate(curve, 1):
            shares = entry.train_accuracy, entry.test_accuracy
            # A mean of ones may be rounded up.
            if entry.epoch != number or any(share < 0 or share > 1.001 for share in shares):
                raise ValueError(f"its entry {number} is {entry}")
        if not all(0 <= value < math.inf for value in seconds):
            raise ValueError(f"its seconds are {seconds}")
        return cls(curve, seconds)


@runtime_checkable
class Checkpointer(Protocol):
    """The calls of `fit` to the keeper of a run's checkpoints."""

    def begin(self, state: TrainState) -> tuple[TrainState, History]:
        """Returns the state and the history that the run starts from."""

    def signal(self) -> int:
        """Returns a number after each epoch; any but 0 asks the run to end."""

    def after_epoch(self, state: TrainState, history: History, signal: int) -> None:
        """Receives the state after each epoch and the signal, usually during the next epoch."""

    def last(self) -> str:
        """Names the newest checkpoint."""


class NoCheckpoints:
    """A run without checkpoints."""

    def begin(self, state: TrainState) -> tuple[TrainState, History]:
        """Returns the initial state and an empty history."""
        return state, History()

    def signal(self) -> int:
        """Returns 0: the run goes on."""
        return 0

    def after_epoch(self, state: TrainState, history: History, signal: int) -> None:
        """Does nothing."""

    def last(self) -> str:
        """Says that no checkpoint was saved, and names the flag that saves them."""
        return "none, since --checkpoint-dir was not given"
