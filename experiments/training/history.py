"""What a run has measured so far; it outlives the process in checkpoints."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from experiments.reading import record_of
from experiments.training.state import TrainState


class Epoch(NamedTuple):
    """The curves' entry of one epoch.

    Attributes:
        epoch: counted from 1.
        train_loss: the mean over the epoch's steps, as the network was while it trained.
        train_accuracy: likewise; a fraction.
        test_loss: after the epoch, in evaluation mode.
        test_accuracy: likewise; a fraction.
        gradient_norm: of the whole gradient, the mean over the epoch's steps.
        parameter_norm: of all raw parameters, after the epoch.
        drift: how far constrained kernels are from their set, after the epoch; 0 where nothing is
            constrained.
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
        """An entry as JSON has it."""
        return record_of(cls, dict(zip(cls._fields, saved, strict=True)))


class History(NamedTuple):
    """The finished epochs of a run.

    Attributes:
        curve: one entry an epoch.
        seconds: what its steps took, evaluation excluded.
    """

    curve: tuple[Epoch, ...] = ()
    seconds: tuple[float, ...] = ()

    def after(self, entry: Epoch, seconds: float) -> "History":
        """The history with one more epoch."""
        return History((*self.curve, entry), (*self.seconds, seconds))

    def to_json(self) -> dict[str, Any]:
        """Lists of numbers; floats survive exactly."""
        return {"curve": [list(entry) for entry in self.curve], "seconds": list(self.seconds)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "History":
        """The inverse of `to_json`; raises for what no run can have measured."""
        curve = tuple(Epoch.of_list(entry) for entry in saved["curve"])
        seconds = tuple(0.0 + value for value in saved["seconds"])
        return cls(curve, seconds)


@runtime_checkable
class Checkpointer(Protocol):
    """What `fit` tells of a run to whoever keeps its checkpoints."""

    def begin(self, state: TrainState) -> tuple[TrainState, History]:
        """From the initial state to where the run starts."""

    def signal(self) -> int:
        """Called after each epoch; anything but 0 asks the run to end."""

    def after_epoch(self, state: TrainState, history: History, signal: int) -> None:
        """Called with the state after each epoch and the signal, as a rule during the next one."""

    def last(self) -> str:
        """Names the newest checkpoint."""


class NoCheckpoints:
    """A run without checkpoints."""

    def begin(self, state: TrainState) -> tuple[TrainState, History]:
        """The beginning."""
        return state, History()

    def signal(self) -> int:
        """That the run goes on."""
        return 0

    def after_epoch(self, state: TrainState, history: History, signal: int) -> None:
        """Does nothing."""

    def last(self) -> str:
        """Says that no checkpoint was saved, and which flag saves one."""
        return "none, since --checkpoint-dir was not given"
