"""What a run does about its checkpoints: resume from one, save, and leave when asked to."""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

from experiments.checkpoints.checkpoints import Checkpoints
from experiments.checkpoints.config import check_config, said_of_versions, versions
from experiments.checkpoints.lock import locked
from experiments.checkpoints.settings import CheckpointSettings
from experiments.checkpoints.signals import noted_signals
from experiments.errors import Stopped, UserError
from experiments.training.history import History
from experiments.training.state import TrainState


class Keeper(NamedTuple):
    """The two moments of a run at which its checkpoints matter; as `fit` takes it.

    Attributes:
        checkpoints: the folder.
        resumed: the epoch to go on from; 0 for the beginning.
        is_due: whether one may be saved after an epoch.
        config: the settings of the run, which go with them.
        epochs: the length of the run.
        signal: the number of the signal that came, or 0.
    """

    checkpoints: Checkpoints
    resumed: int
    is_due: Callable[[int], bool]
    config: dict[str, Any]
    epochs: int
    signal: Callable[[], int]

    def begin(self, state: TrainState) -> tuple[TrainState, History]:
        """Where the run starts: the initial state, or the checkpoint's."""
        if not self.resumed:
            return state, History()
        record = self.checkpoints.record(self.resumed)
        history = self.checkpoints.history(self.resumed, record)
        state = self.checkpoints.state(self.resumed, state)
        self.checkpoints.forget_after(self.resumed)
        of = said_of_versions(record.get("versions", {}))
        print(f"resumed from {self.checkpoints.path(self.resumed)}{of}.", file=sys.stderr)
        return state, history

    def after_epoch(self, state: TrainState, history: History, signal: int) -> None:
        """Saves if it is time; raises Stopped, when the state is safe, if a signal came."""
        epoch = len(history.curve)
        if self.is_due(epoch) or signal or epoch == self.epochs:
            record = {"config": self.config, "history": history.to_json(), "versions": versions()}
            self.checkpoints.save(epoch, state, record)
        if signal:
            raise Stopped(
                signal,
                f"stopped by a signal after epoch {epoch} of {self.epochs}; saved as "
                f"{self.checkpoints.path(epoch)}: --resume goes on from there.",
            )

    def last(self) -> str:
        """The path of the newest checkpoint, or that there is none."""
        epochs = self.checkpoints.epochs
        return self.checkpoints.path(epochs[-1]) if epochs else "none"


@contextlib.contextmanager
def keeping(settings: CheckpointSettings, config: dict[str, Any], epochs: int) -> Iterator[Keeper]:
    """A keeper; leaving waits until what was saved is on disk.

    Raises:
        UserError: before any work, if another run uses the folder, if there is nothing to resume
            from, or of other settings.
    """
    due = _due(settings)
    with (
        noted_signals() as signal,
        locked(settings.folder),
        Checkpoints(settings.folder, settings.keep) as checkpoints,
    ):
        resumed = _resumed_epoch(checkpoints, settings)
        if resumed:
            record = checkpoints.record(resumed)
            check_config(record["config"], config, checkpoints.path(resumed))
            checkpoints.history(resumed, record)
        yield Keeper(checkpoints, resumed, due, config, epochs, signal)


def _due(settings: CheckpointSettings) -> Callable[[int], bool]:
    """Whether a checkpoint is due after an epoch: by its number, and by the clock."""
    if settings.seconds and (processes := jax.process_count()) > 1:
        raise UserError(
            f"--checkpoint-seconds is {settings.seconds:g}, and there are {processes} processes, "
            "each with a clock of its own; wanted epochs that all count alike: --checkpoint-every."
        )
    last = -math.inf

    def is_due(epoch: int) -> bool:
        nonlocal last
        now = time.monotonic()
        if epoch % settings.every or now < last + settings.seconds:
            return False
        last = now
        return True

    return is_due


def _resumed_epoch(checkpoints: Checkpoints, settings: CheckpointSettings) -> int:
    """The epoch to go on from; 0 for the beginning."""
    epochs, wanted = checkpoints.epochs, settings.resume_from
    if wanted is not None:
        if wanted not in epochs:
            there = ", ".join(map(str, epochs)) or "none"
            raise UserError(
                f"--resume-from is {wanted}; the checkpoints in {checkpoints.folder} are {there}."
            )
        return wanted
    if epochs and not settings.resume:
        raise UserError(
            f"{checkpoints.folder} holds checkpoints up to epoch {epochs[-1]}; go on with "
            "--resume, or give another --checkpoint-dir."
        )
    return epochs[-1] if epochs else 0
