"""The results of a run so far, which checkpoints keep."""

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

from experiments.training.run import Epoch
from experiments.training.state import TrainState


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
