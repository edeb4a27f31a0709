"""A folder of checkpoints, one per saved epoch, of which the newest few are kept."""

import contextlib
import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
from jaxtyping import PyTree

from experiments.errors import UserError
from experiments.runs.arrays import abstract, checksums, flatten, unflatten
from experiments.runs.signals import Stopped
from experiments.training.history import History
from experiments.training.run import Diverged

#: The schemes of folders that are not on a local disk.
SCHEMES = ("gs", "s3")


class Checkpoints:
    """A folder with one checkpoint ``FOLDER/EPOCH`` for each of the newest saved epochs.

    A checkpoint is written under another name and then renamed, so that it is complete or absent.
    Writing goes on in the background; leaving the ``with`` block waits for it.

    Args:
        folder: a local path, or one that Orbax knows, such as ``gs://bucket/run``.
        keep: the number of checkpoints to keep.
    """

    def __init__(self, folder: str, keep: int = 3):
        # Imported here, because the import takes a third of a second.
        import orbax.checkpoint as ocp

        self.folder = folder if "://" in folder else os.path.abspath(folder)
        self._args = ocp.args
        # It logs a page for each error that it also raises.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        wait = ocp.multihost.get_barrier_sync_fn()

        def barrier(*, key: str, timeout_ms: int) -> None:
            if error := sys.exception():
                raise error  # The other processes wait for what this one could not write.
            wait(key=key, timeout_ms=timeout_ms)

        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            cleanup_tmp_directories=True,
            async_options=ocp.options.AsyncOptions(barrier_sync_fn=barrier),
        )
        with writing(folder), _known_place(folder):
            self._manager = ocp.CheckpointManager(self.folder, options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind and not issubclass(kind, Stopped | Diverged) and jax.process_count() > 1:
            return  # The other processes wait for this one, and are told when it ends.
        with writing(self.folder):
            self._manager.close()

    @property
    def epochs(self) -> list[int]:
        """The epochs after which there is a checkpoint, in order."""
        return sorted(self._manager.all_steps())

    def path(self, epoch: int) -> str:
        """Returns the path of an epoch's checkpoint."""
        return f"{self.folder}/{epoch}"

    def save(self, epoch: int, state: PyTree, record: dict[str, Any]) -> None:
        """Copies the state, so that its memory may be reused, and writes it in the background.

        Args:
            epoch: the number of finished epochs.
            state: any tree of arrays, sharded or not.
            record: ``config`` and ``history`` of the run, as JSON's types.
        """
        flat = flatten(state)
        record = {**record, "checksums": checksums(flat)}
        items = self._args.Composite(
            state=self._args.StandardSave(flat),
            record=self._args.JsonSave({**record, "sha256": _digest(record)}),
        )
        with writing(self.folder):
            self._manager.save(epoch, args=items)

    def record(self, epoch: int) -> dict[str, Any]:
        """Returns the ``config`` and the ``history`` that were saved with the state."""
        items = self._args.Composite(record=self._args.JsonRestore())
        with self._reading(epoch):
            record: dict[str, Any] = self._manager.restore(epoch, args=items).record
            if record["sha256"] != _digest(record):
                raise ValueError("its record differs from the saved one")
            if not all(isinstance(record.get(name, {}), dict) for name in ("config", "versions")):
                raise ValueError("its record is not one of a training run")
        return record

    def history(self, epoch: int, record: dict[str, Any]) -> History:
        """Returns the finished epochs of a run, read from the ``record`` of that epoch."""
        with self._reading(epoch):
            history = History.from_json(record["history"])
            if not len(history.curve) == len(history.seconds) == epoch:
                raise ValueError(f"its history has {len(history.curve)} epochs")
        return history

    def state(self, epoch: int, like: PyTree) -> PyTree:
        """Returns the saved state, on the devices and with the shardings of ``like``."""
        items = self._args.Composite(state=self._args.StandardRestore(abstract(like)))
        saved = self.record(epoch)["checksums"]
        with self._reading(epoch):
            state = self._manager.restore(epoch, args=items).state
            # Orbax does not notice a flipped byte.
            read = checksums(state)
            changed = sorted(name for name in read if saved.get(name) != read[name])
            if changed:
                raise ValueError(f"{', '.join(changed)}: the numbers differ from the saved ones")
            return unflatten(state, like)

    def forget_after(self, epoch: int) -> None:
        """Deletes the checkpoints of later epochs."""
        for later in self.epochs:
            if later > epoch:
                with writing(self.folder):
                    self._manager.delete(later)

    @contextlib.contextmanager
    def _reading(self, epoch: int) -> Iterator[None]:
        try:
            with quiet_pending():
                yield
        except Exception as error:  # Orbax, TensorStore and JSON raise different types.
            before = [one for one in self.epochs if one < epoch]
            way_out = "no earlier one exists: take another --checkpoint-dir"
            if before:
                way_out = f"--resume-from {before[-1]} takes the earlier one"
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"cannot read the checkpoint {self.path(epoch)}, which is damaged or of another "
                f"program; wanted one that train wrote: {way_out}. "
                f"({type(error).__name__}: {reason})"
            ) from error


@contextlib.contextmanager
def writing(folder: str) -> Iterator[None]:
    """Turns the errors of a folder that cannot be written into a UserError."""
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError) as error:
        # TensorStore reports a full disk as a ValueError.
        raise UserError(
            f"cannot write checkpoints to {folder}: {error}; free it or change --checkpoint-dir."
        ) from error


def _digest(record: dict[str, Any]) -> str:
    """Returns the checksum of a record, except for the checksum in it."""
    values = {name: value for name, value in record.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def _known_place(folder: str) -> Iterator[None]:
    """Raises UserError for folders that Orbax cannot reach."""
    scheme, separator, _ = folder.rpartition("://")
    if not folder.strip() or (separator and scheme not in SCHEMES):
        raise UserError(
            f"--checkpoint-dir is {folder!r}; wanted a local folder, or one of "
            f"{', '.join(f'{known}://...' for known in SCHEMES)}: leave it out for no checkpoints."
        )
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"cannot reach {folder}: {error}; pip install that, or give a local --checkpoint-dir."
        ) from error


@contextlib.contextmanager
def quiet_pending() -> Iterator[None]:
    """Keeps TensorStore's pending reads and writes off stderr when one fails.

    They find Orbax's event loop closed.
    """
    before = sys.unraisablehook

    def tell(unraisable: Any) -> None:
        if "Event loop is closed" not in str(unraisable.exc_value):
            before(unraisable)

    sys.unraisablehook = tell
    try:
        yield
    except Exception:
        time.sleep(0.5)  # They end later.
        raise
    finally:
        sys.unraisablehook = before
