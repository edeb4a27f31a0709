"""The checkpoints of a run: it resumes from one, saves, and stops on a signal."""

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.errors import UserError
from experiments.runs.checkpoint_settings import CheckpointSettings
from experiments.runs.checkpoints import Checkpoints, quiet_pending, writing
from experiments.runs.lock import locked
from experiments.runs.processes import check_same, gathered, writes
from experiments.runs.progress import tell
from experiments.runs.signals import Stopped, noted_signals
from experiments.runs.spec import check_config, check_options, version_note, versions
from experiments.training.history import Checkpointer, History, NoCheckpoints
from experiments.training.state import TrainState

#: The file that shows whether all processes see one folder; it is there for a moment.
MARKER = ".shared"


class Keeper(NamedTuple):
    """The checkpointer that `fit` calls before the first epoch and after each.

    Attributes:
        checkpoints: the folder.
        resumed: the epoch to resume from; 0 for a new run.
        is_due: ``is_due(epoch)``, True if a checkpoint may be saved after the epoch.
        config: the settings of the run, saved with each checkpoint.
        epochs: the number of epochs of the run.
        signal: returns the number of the signal received, or 0.
        versions: the versions of the run: those of the checkpoint that it resumes from, as far as
            they are others than the present ones, since its first epochs are of them.
    """

    checkpoints: Checkpoints
    resumed: int
    is_due: Callable[[int], bool]
    config: dict[str, Any]
    epochs: int
    signal: Callable[[], int]
    versions: dict[str, str]

    def begin(self, state: TrainState) -> tuple[TrainState, History]:
        """Returns the state and history to start from: the initial ones, or the checkpoint's."""
        if not self.resumed:
            return state, History()
        record = self.checkpoints.record(self.resumed)
        history = self.checkpoints.history(self.resumed, record)
        state = self.checkpoints.state(self.resumed, state)
        self.checkpoints.forget_after(self.resumed)
        note = version_note(record.get("versions", {}))
        tell(f"resumed from {self.checkpoints.path(self.resumed)}{note}.")
        return state, history

    def after_epoch(self, state: TrainState, history: History, signal: int) -> None:
        """Saves if a checkpoint is due; raises Stopped, once the state is saved, after a signal."""
        epoch = len(history.curve)
        if self.is_due(epoch) or signal or epoch == self.epochs:
            record = {
                "config": self.config,
                "history": history.to_json(),
                "versions": self.versions,
            }
            self.checkpoints.save(epoch, state, record)
        if signal:
            raise Stopped(
                signal,
                f"stopped by a signal after epoch {epoch} of {self.epochs}; saved as "
                f"{self.checkpoints.path(epoch)}: --resume goes on from there.",
            )

    def last(self) -> str:
        """Returns the path of the newest checkpoint, or "none"."""
        epochs = self.checkpoints.epochs
        return self.checkpoints.path(epochs[-1]) if epochs else "none"


@contextlib.contextmanager
def keeping(
    settings: CheckpointSettings, config: dict[str, Any], epochs: int
) -> Iterator[Checkpointer]:
    """Makes the checkpointer of a run; leaving the block waits until all is on disk.

    Without a folder the run has no checkpoints.

    Raises:
        UserError: if another run uses the folder, if not all processes see and write it, if it has
            checkpoints and the run is not to resume, or if the checkpoint has other settings or
            does not exist.
    """
    folder = settings.checkpoint_dir
    if folder is None:
        yield NoCheckpoints()
        return
    due = _due(settings)
    with contextlib.ExitStack() as stack:
        signal = stack.enter_context(noted_signals())
        stack.enter_context(locked(folder))
        _check_shared(settings, folder)
        stack.enter_context(quiet_pending())
        checkpoints = stack.enter_context(Checkpoints(folder, settings.keep))
        resumed, began = _resumed_epoch(checkpoints, settings), versions()
        if resumed:
            record = checkpoints.record(resumed)
            check_config(record["config"], config, checkpoints.path(resumed))
            check_options(record.get("versions", {}), checkpoints.path(resumed))
            checkpoints.history(resumed, record)
            began |= record.get("versions", {})
        yield Keeper(checkpoints, resumed, due, config, epochs, signal, began)


def _check_shared(settings: CheckpointSettings, folder: str) -> None:
    """Raises UserError unless all processes have these settings and see the folder, if it is local.

    Empty folders, which Orbax would take for checkpoints, are removed.
    """
    flags = {each.name: getattr(settings, each.name) for each in fields(CheckpointSettings)}
    check_same({**flags, "checkpoint_dir": ""})
    if "://" in folder:
        return
    marker = Path(folder) / MARKER
    with writing(folder):
        token = secrets.token_hex()
        if writes():
            marker.parent.mkdir(parents=True, exist_ok=True)
            for each in marker.parent.iterdir():
                if each.name.isdigit():
                    with contextlib.suppress(OSError):
                        each.rmdir()
            marker.write_text(token)
        token = gathered(token)[0]
        if not marker.exists() or marker.read_text() != token:
            raise UserError(
                f"--checkpoint-dir is {folder}, and process {jax.process_index()} does "
                "not see there what process 0 writes; wanted a folder on a disk of all processes."
            )
        gathered("")  # All have read it.
        if writes():
            marker.unlink()


def _due(settings: CheckpointSettings) -> Callable[[int], bool]:
    """Returns the predicate of due checkpoints, by the epoch's number and by the clock."""
    seconds, last = settings.checkpoint_seconds, -math.inf
    if seconds and (processes := jax.process_count()) > 1:
        raise UserError(
            f"--checkpoint-seconds is {seconds:g}, and there are {processes} processes, each with "
            "a clock of its own; count epochs instead: --checkpoint-every."
        )

    def is_due(epoch: int) -> bool:
        nonlocal last
        now = time.monotonic()
        if epoch % settings.checkpoint_every or now < last + seconds:
            return False
        last = now
        return True

    return is_due


def _resumed_epoch(checkpoints: Checkpoints, settings: CheckpointSettings) -> int:
    """Returns the epoch to resume from; 0 for a new run."""
    epochs, requested = checkpoints.epochs, settings.resume_from
    if requested is not None:
        if requested not in epochs:
            saved = ", ".join(map(str, epochs)) or "none"
            raise UserError(
                f"--resume-from is {requested}; the checkpoints in {checkpoints.folder}: {saved}."
            )
        return requested
    if epochs and not settings.resume:
        raise UserError(
            f"{checkpoints.folder} holds checkpoints up to epoch {epochs[-1]}; go on with "
            "--resume, or give another --checkpoint-dir."
        )
    if not epochs and settings.resume:
        tell(f"nothing to resume in {checkpoints.folder}: the run begins.")
    return epochs[-1] if epochs else 0
